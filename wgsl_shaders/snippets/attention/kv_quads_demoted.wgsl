@group(0) @binding(5) var<storage, read> demoted: array<u32>;
#import tiers
