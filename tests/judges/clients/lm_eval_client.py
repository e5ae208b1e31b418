"""lm-eval's ``local-completions``: log likelihoods of continuations, four prompts in a request."""

import json
import os
import sys

from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI

pairs = json.load(sys.stdin)
model = LocalCompletionsAPI(
    base_url=os.environ["ZEROLAYER_TEST_URL"] + "/v1/completions",
    model=os.environ["ZEROLAYER_TEST_MODEL"],
    tokenizer=os.environ["ZEROLAYER_TEST_TOKENIZER"],
    tokenizer_backend="huggingface",
    batch_size=4,
    max_length=500,
    max_retries=3,
)
requests = [Instance("loglikelihood", {}, tuple(pair), number) for number, pair in enumerate(pairs)]
scores = model.loglikelihood(requests, disable_tqdm=True)
print(json.dumps({"scores": scores, "ids": [model._encode_pair(*pair) for pair in pairs]}))
