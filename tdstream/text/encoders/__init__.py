"""What turns text into ids, and the proof that fast encoders give the same ones."""
