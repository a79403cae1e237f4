#!/bin/sh
# Install uv into ~/.local/bin from its wheel, if the wheel has this digest. For Linux on x86-64.
#
# uv's own installer script is not used: its address may serve another script tomorrow.
set -eu
wheel=uv-0.13.8-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl
address=https://files.pythonhosted.org/packages/c5/32/52ee34636aea1ab3f8baeeae1c3599461b8cddfb379862cc72ac61b8d91c
digest=e18a57b8b352eb7c8feb317b9f6f533c8f0ad9673fd6cf34bbe3cf1a9f6a8984

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
curl -LsSf -o "$folder/$wheel" "$address/$wheel"
echo "$digest  $folder/$wheel" | sha256sum --check --quiet || { echo "$wheel has another digest; nothing was installed" >&2; exit 1; }
python3 -m zipfile -e "$folder/$wheel" "$folder"
install -D -m 755 "$folder/uv-0.13.8.data/scripts/uv" "$HOME/.local/bin/uv"
