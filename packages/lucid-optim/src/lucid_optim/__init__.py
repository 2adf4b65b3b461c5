"""MuSGD, a hybrid of Muon and SGD, for any torch model."""
