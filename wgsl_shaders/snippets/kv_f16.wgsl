// Keys and values as float16, four to an element; packed by hand, since shader-f16 is not everywhere.
alias KV = vec2u;
fn kv_pack(value: vec4f) -> KV { return vec2u(pack2x16float(value.xy), pack2x16float(value.zw)); }
fn kv_unpack(stored: KV) -> vec4f { return vec4f(unpack2x16float(stored.x), unpack2x16float(stored.y)); }
