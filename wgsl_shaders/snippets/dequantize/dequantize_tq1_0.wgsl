// TQ1_0: repack_tq1_0 makes it TQ2_0.
#import dequantize_tq2_0
