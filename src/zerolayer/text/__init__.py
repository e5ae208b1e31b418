"""Words and ids: vocabulary, encode, incremental decode, stop strings, chat template. No tensors."""
