"""``llm`` with this server as an extra model: a reply, a stream, and an error."""

import json
import os
from pathlib import Path

import openai

BASE = os.environ["ZEROLAYER_TEST_URL"] + "/v1"
MODEL = openai.OpenAI(base_url=BASE, api_key="none").models.list().data[0].id
Path(os.environ["LLM_USER_PATH"], "extra-openai-models.yaml").write_text(
    json.dumps(  # which is YAML too
        [
            {"model_id": "zl", "model_name": MODEL, "api_base": BASE},
            {"model_id": "other", "model_name": "nothing", "api_base": BASE},
        ]
    )
)

import llm  # noqa: E402 - reads the file when it is imported

model = llm.get_model("zl")
options = {"temperature": 0, "max_tokens": 8, "key": "none"}
whole = model.prompt("hello", stream=False, **options)
streamed = model.prompt("hello", stream=True, **options)
pieces = list(streamed)
try:
    error = None
    llm.get_model("other").prompt("hello", stream=False, **options).text()
except openai.APIStatusError as refused:
    error = refused.status_code
usage = streamed.usage()
print(
    json.dumps(
        {"whole": whole.text(), "streamed": "".join(pieces), "error": error, "usage": [usage.input, usage.output]}
    )
)
