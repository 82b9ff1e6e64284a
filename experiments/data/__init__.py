"""Data: prepared once, with SeqIO and TFDS, into files that training reads with NumPy alone.

config      what is asked for             objectives  what a batch is made of
corpus      the embedded corpus             span_corruption, mlm, digits, images
documents   the user's files              randomness  what is drawn for row r of the stream
sources     what is there to prepare from windows     prepared files, written and read
tasks       the SeqIO tasks               batches     batch(seed, i)
image_sets  TFDS images, read in place
prepare     finds or makes prepared files prefetch    batches made ahead
prepare_worker  the process that makes    baseline    the loss of a model that sees no input
"""
