from typing_extensions import Buffer

from ctrlchan.broker.log._batches import AppendRules, Checked

def check_old(data: Buffer, rules: AppendRules) -> tuple[int, Checked]: ...
