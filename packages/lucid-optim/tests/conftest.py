import hypothesis

# a test never asserts a time
hypothesis.settings.register_profile("lucid", deadline=None)
hypothesis.settings.load_profile("lucid")
