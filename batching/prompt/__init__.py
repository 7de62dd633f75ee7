"""Prompts: tokenizer, chat template in a sandbox, streaming detokenizer, and the folder that holds them."""

from batching.prompt.chat import ChatPrompt, ChatTemplate, render_chat
from batching.prompt.detokenize import Detokenizer, StreamDecoder
from batching.prompt.errors import ChatTemplateError, NoChatTemplate, UnsupportedTokenizer
from batching.prompt.profile import PromptFacts, PromptProfile, SamplingDefaults
from batching.prompt.tokenizer import Tokenizer

__all__ = [
    "ChatPrompt",
    "ChatTemplate",
    "ChatTemplateError",
    "Detokenizer",
    "NoChatTemplate",
    "PromptFacts",
    "PromptProfile",
    "SamplingDefaults",
    "StreamDecoder",
    "Tokenizer",
    "UnsupportedTokenizer",
    "render_chat",
]
