// The client that the conformance tests start with the address of their server: that of the page, in node. It lists the
// server's tools and calls each.
import { McpClient } from '../../../web/mcp/client.js';

const ARGUMENTS = { add_numbers: { a: 5, b: 3 } };
const never = new AbortController().signal;
const client = new McpClient(process.argv.at(-1));
const { tools } = await client.connect(never);
for (const { name } of tools) {
  console.log(name, await client.call(name, ARGUMENTS[name] ?? {}, never).catch(({ message }) => message));
}
client.close();
