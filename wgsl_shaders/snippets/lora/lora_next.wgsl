// Without an adapter: stores nothing besides the values. The variant lora_next_part does.
const NEXT = false;
struct NextColumns { unused: u32 }
fn next_columns(first: u32, index: u32) -> NextColumns { return NextColumns(); }
fn next_value(i: u32, value: f32) {}
fn next_part(part: u32, columns: NextColumns, index: u32) {}
