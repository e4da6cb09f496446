"""Models that answer masked states: any torch model, Hugging Face, antibodies, proteins."""
