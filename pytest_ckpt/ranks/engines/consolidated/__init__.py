"""Engine ``safetensors-consolidated``: Hugging Face's files by torch's writer, made whole by rank 0."""
