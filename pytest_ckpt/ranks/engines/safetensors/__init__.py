"""Engine ``safetensors``: Hugging Face's files, the state in memory."""
