// Vercel's ai: replies, streams, structured output and tools through both of its providers and the Responses API, an error; or,
// as ZEROLAYER_TEST_ASK says, "left": a stream that is left; "busy": more calls than the server has slots. One line of JSON.
import { APICallError, Output, generateText, streamText, tool } from "ai";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { z } from "zod";

const baseURL = process.env.ZEROLAYER_TEST_URL + "/v1";
const name = (await (await fetch(baseURL + "/models")).json()).data[0].id;
const compatible = createOpenAICompatible({ name: "zerolayer", baseURL, apiKey: "none", includeUsage: true, supportsStructuredOutputs: true });
const openai = createOpenAI({ baseURL, apiKey: "none" });
const colour = z.object({ colour: z.enum(["red", "green"]) });
const tools = { choose: tool({ description: "A colour", inputSchema: colour }) };
const ask = { prompt: "hello", temperature: 0, maxOutputTokens: 8, maxRetries: 0 };
if (process.env.ZEROLAYER_TEST_ASK === "left") {
  const controller = new AbortController();
  let left = 0;
  try {
    for await (const _ of streamText({ model: compatible(name), ...ask, maxOutputTokens: 400, abortSignal: controller.signal }).textStream)
      if (++left === 3) controller.abort();
  } catch (aborted) { if (aborted.name !== "AbortError") throw aborted; }
  console.log(left);
  process.exit();
}
if (process.env.ZEROLAYER_TEST_ASK === "busy") {
  const served = await Promise.all(Array.from({ length: 6 }, () => generateText({ model: compatible(name), ...ask, maxOutputTokens: 40, maxRetries: 2 })));
  console.log(served.length);
  process.exit();
}
const seen = {};
for (const [kind, model] of Object.entries({ compatible: compatible(name), chat: openai.chat(name), responses: openai.responses(name) })) {
  const whole = await generateText({ model, ...ask });
  const stream = streamText({ model, ...ask });
  let text = "";
  for await (const piece of stream.textStream) text += piece;
  const roomy = { model, ...ask, maxOutputTokens: 100 };
  const structured = await generateText({ ...roomy, output: Output.object({ schema: colour }) });
  const called = await generateText({ ...roomy, tools, toolChoice: { type: "tool", toolName: "choose" } });
  seen[kind] = { structured: structured.output.colour, called: called.toolCalls.map((call) => [call.toolName, call.input.colour]), whole: whole.text, streamed: text, reason: await stream.finishReason, usage: (await stream.usage).totalTokens, counted: whole.usage.totalTokens };
}
let error = null;
try { await generateText({ model: compatible("nothing"), ...ask }); }
catch (refused) { error = [APICallError.isInstance(refused), refused.statusCode]; }
console.log(JSON.stringify({ ...seen, error }));
