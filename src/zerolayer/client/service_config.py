"""What a gRPC client must be told so that it comes back when the server says so (gRFC A6; grpc/service_config.proto).

    grpc.insecure_channel(address, options=[("grpc.service_config", SERVICE_CONFIG)])

Without a retry policy that lists a status, gRPC ignores ``grpc-retry-pushback-ms``. The back-off holds only where no
such time is told. Refusals also spend gRPC's tokens against retry storms; each of ours comes with a time at which it is
served, so that there are many of them.
"""

from __future__ import annotations

import json
from typing import Final

SERVICE_CONFIG: Final = json.dumps(
    {
        "methodConfig": [
            {
                "name": [{"service": "zerolayer.v1.Inference"}],
                "retryPolicy": {
                    "maxAttempts": 5,  # the most that gRPC allows
                    "initialBackoff": "0.2s",
                    "maxBackoff": "2s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"],
                },
            }
        ],
        "retryThrottling": {"maxTokens": 1000, "tokenRatio": 1},
    }
)
