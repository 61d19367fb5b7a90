"""Of a version, what pdc said, and the project that it wrote: a pdc with the runtime for CUDA writes for CUDA, another says why not."""
import pathlib
import sys

text = pathlib.Path(sys.argv[1]).read_text()
if "targets cpu cuda" in text:
    assert "remark: the target is CUDA: this machine has 2 GPUs" in text and "LANGUAGES CXX CUDA" in text, text
else:
    assert "remark: the target is the CPU, though 2 GPUs could be used: this pdc was built without the runtime for CUDA" in text, text
    assert "help: build pdc where nvcc and cuDNN are" in text and "LANGUAGES CXX CUDA" not in text, text
