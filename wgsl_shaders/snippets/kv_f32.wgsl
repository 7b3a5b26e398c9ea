// Keys and values as float32, four to an element.
alias KV = vec4f;
fn kv_pack(value: vec4f) -> KV { return value; }
fn kv_unpack(stored: KV) -> vec4f { return stored; }
