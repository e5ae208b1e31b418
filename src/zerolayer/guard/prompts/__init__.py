"""What a request's text is to the model: bounds that its bytes alone give, and the prompt itself."""
