// The values of the codes of IQ4_NL and IQ4_XS.
#import table_codes
const TABLE = vec4u(0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
