// LANES = 1: nothing to sum. For software adapters, on which a barrier costs far more than it saves.
fn reduce_lanes(value: f32, index: u32) -> f32 { return value; }
fn shuffle_xor(value: f32, mask: u32, index: u32) -> f32 { return value; }
