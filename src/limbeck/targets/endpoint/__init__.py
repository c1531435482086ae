"""A teacher behind an endpoint: a server that speaks OpenAI's embeddings API, asked for the vectors of texts.

vLLM, text-embeddings-inference, Ollama and many vendors have such servers. `address` says where one is, `client` asks
it for a batch, `answer` reads what it sends, `pace` keeps to its limits, and `asking` has several batches under way.
"""
