"""What can be wrong with a prompt or a template, as the platform's errors."""

from __future__ import annotations

from common.errors import InvalidInput


class ChatTemplateError(InvalidInput):
    """The template refused the messages, failed on them, or passed a limit; says what it said."""

    code = "chat_template_error"


class NoChatTemplate(InvalidInput):
    """The checkpoint brings no chat template."""

    code = "no_chat_template"

    def __init__(self) -> None:
        super().__init__("this model has no chat template; use /v1/completions with a plain prompt")


class UnsupportedTokenizer(InvalidInput):
    """A tokenizer that cannot be served exactly; says what is unknown about it."""

    code = "unsupported_tokenizer"
