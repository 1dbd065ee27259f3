"""Where images are handed in: one at a time is tried."""

import secrets
import threading
from http import HTTPStatus

from ebmlife.report.trial import Defence, Trial
from ebmlife.report.uploads import Form, TrialSettings, decode_image


class Refused(Exception):
    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class Trials:
    """Takes images, one at a time, and keeps the trial under way or the last one."""

    def __init__(self, defence: Defence, form: Form) -> None:
        self.form, self._defence, self._lock = form, defence, threading.Lock()
        self._name = ""
        self._trial: Trial | None = None

    def begin(self, body: bytes, kind: str, wish: TrialSettings) -> str:
        """The name of a new trial."""
        with self._lock:  # one image is unpacked at a time: they can be large
            if self._trial is not None and not self._trial.over:
                raise Refused(HTTPStatus.CONFLICT, "another image is being tried; wait for it or cancel it")
            x = decode_image(body, kind=kind, shape=self._defence.shape)
            self._name, self._trial = secrets.token_hex(8), Trial(self._defence, x, wish)
            return self._name

    def find(self, name: str) -> Trial:
        if self._trial is None or name != self._name:
            raise Refused(HTTPStatus.NOT_FOUND, "this trial is not there any more")
        return self._trial
