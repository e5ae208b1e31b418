// What @anthropic-ai/sdk makes of a server; one line of JSON.
import Anthropic from "@anthropic-ai/sdk";
const client = new Anthropic({ baseURL: process.env.ZEROLAYER_TEST_URL, apiKey: "none", maxRetries: 0 });
const listed = await client.models.list();
const model = listed.data[0].id;
const one = await client.models.retrieve(model);
const ask = { model, messages: [{ role: "user", content: "hello" }], max_tokens: 6, temperature: 0 };
if (process.env.ZEROLAYER_TEST_ASK === "abort") {
  // Of a server that takes its time: this SDK never settles when it aborts after all of an answer has arrived.
  let seen = 0, aborted = false;
  const cut = client.messages.stream({ ...ask, max_tokens: 400 });
  try { for await (const event of cut) if (++seen === 4) cut.abort(); }
  catch (error) { aborted = error.constructor.name === "APIUserAbortError"; }
  console.log(JSON.stringify({ seen, aborted }));
  process.exit();
}
const whole = await client.messages.create(ask);
const stream = client.messages.stream(ask);
let text = "";
stream.on("text", (piece) => { text += piece; });
const streamed = await stream.finalMessage();
const raw = [];
for await (const event of await client.messages.create({ ...ask, stream: true })) raw.push(event.type);
const tools = [{ name: "weather", description: "Tells it.",
  input_schema: { type: "object", properties: { city: { type: "string", enum: ["Ulm"] } }, required: ["city"] } }];
const forced = { tools, tool_choice: { type: "tool", name: "weather" } };
const call = await client.messages.create({ ...ask, max_tokens: 200, ...forced });
const count = await client.messages.countTokens({ model, messages: ask.messages, ...forced });
const schema = { type: "object", properties: { sky: { enum: ["blue", "grey"] } }, required: ["sky"],
  additionalProperties: false };
const formed = await client.messages.create(
  { ...ask, max_tokens: 200, output_config: { format: { type: "json_schema", schema } } });
const errors = {};
for (const [name, change] of Object.entries({ model: { model: "nothing" }, range: { temperature: 2 } })) {
  try { await client.messages.create({ ...ask, ...change }); }
  catch (error) { errors[name] = [error.constructor.name, error.status, error.error?.error?.type, error.requestID]; }
}
const beta = await client.beta.messages.create({ ...ask, betas: ["a-2024-01-01"] });
const said = { listed: listed.data, one, whole, text, streamed, raw, call, count, formed, errors, beta };
console.log(JSON.stringify(said));
