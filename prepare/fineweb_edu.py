"""Tokenize FineWeb-Edu, or any other dataset, and write it as a corpus of token shards.

    python prepare/fineweb_edu.py --tokenizer gpt2 --output_path ./data/fineweb-edu-sample-10BT/
    python prepare/fineweb_edu.py --dataset ./my-texts --tokenizer ./my-tokenizer --output_path ./data/mine

The same as ``tdstream prepare``, with the same flags; ``--help`` lists them.
"""

import sys

from tdstream.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["prepare", *sys.argv[1:]], own_process=True))
