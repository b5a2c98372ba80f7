"""The tiny world's tokenizer: a small byte pair encoding trained on its own documents.

Digits stay single, so that numbers have one spelling in tokens; the tags of the tool protocol are
one token each but ordinary text when decoded.  The corpus never depends on the run's seed: every
tiny model has the same tokenizer, and a model works only with the tokenizer it was trained with.
"""

import random
import string

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from training.tiny_world.documents import EOS, Document, Flaws, curriculum_document, solver_document
from training.tiny_world.grammar import make_problem

PAD, UNKNOWN = "<pad>", "<unk>"
TAGS = ("<python>", "</python>", "<output>", "</output>")
_CORPUS = 4000
_CORPUS_SEED = 20_251
CONTEXT = 512


def train_tokenizer(
    curriculum_prompt: str, executor_template: str, vocabulary: int = 320
) -> PreTrainedTokenizerFast:
    """Train the tokenizer on documents of the grammar; equal templates give equal tokenizers.

    ``vocabulary`` is an upper bound: the grammar has too few words to fill a large one.  Printable
    ASCII and the line feed are known; anything else becomes ``<unk>``.
    """
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    words = Regex(r"\d| ?[A-Za-z]+|[^A-Za-z\d]")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(words, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    plain = string.digits + string.ascii_letters + string.punctuation
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(TAGS),
        special_tokens=[PAD, EOS, UNKNOWN],
        initial_alphabet=[*plain, "Ġ", "Ċ"],  # how ByteLevel writes a space and a line feed
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(curriculum_prompt, executor_template), trainer)
    tokenizer.add_tokens([AddedToken(tag, normalized=False, special=False) for tag in TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNKNOWN,
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
    )


def encode_document(
    tokenizer: PreTrainedTokenizerFast, document: Document
) -> tuple[list[int], list[bool]]:
    """Token ids of a document and, for each, whether the model is to learn to write it.

    Spans are encoded apart, as a rollout encodes prompt and observations apart.
    """
    ids: list[int] = []
    learned: list[bool] = []
    for span in document:
        piece = tokenizer.encode(span.text, add_special_tokens=False)
        ids += piece
        learned += [span.learned] * len(piece)
    return ids, learned


def _corpus(curriculum_prompt: str, executor_template: str) -> list[str]:
    rng, flaws = random.Random(_CORPUS_SEED), Flaws()
    texts: list[str] = []
    for index in range(_CORPUS):
        problem = make_problem(rng)
        if index % 2:
            document = curriculum_document(rng, problem, curriculum_prompt, flaws)
        else:
            prompt = executor_template.replace("{problem}", problem)
            document = solver_document(rng, problem, prompt, flaws)
        text = "".join(span.text for span in document)
        for tag in (EOS, *TAGS):  # tags are tokens of their own and must not feed the merges
            text = text.replace(tag, "\n")
        texts.append(text)
    return texts
