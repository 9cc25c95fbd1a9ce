"""An independent twin of the request fingerprint (DESIGN §6), written from the text alone.

`generate N` prints N random send requests, one JSON document a line.
`check N` reads N digests from standard input and compares them with its own.
Both draw the same requests from the same seed, so no file passes between them.
"""
import hashlib
import json
import random
import sys

ALPHABET = ["a", "B", "7", " ", '"', "\\", "/", "\b", "\f", "\n", "\r", "\t", "\x00", "\x1f", "\x7f",
            "é", "e\u0301", "\u2028", "\ufb33", "€", "😀", "\U0010ffff", "世"]


def text(rng, longest):
    return "".join(rng.choices(ALPHABET, k=rng.randrange(longest)))


def number(rng):
    kind = rng.randrange(5)
    if kind == 0:
        return rng.randrange(-(2**53) + 1, 2**53)
    if kind == 1:
        return rng.randrange(-100, 100)
    if kind == 2:
        return rng.random()
    if kind == 3:
        return rng.uniform(-1, 1) * 10.0 ** rng.randrange(-30, 15)
    return rng.choice([0.0, -0.0, 1.0, 1e-7, 1e-6, 123456789.125, 5e-324, 1e15, 0.1 + 0.2])


def value(rng, depth):
    kind = rng.randrange(8 if depth < 3 else 5)
    if kind < 2:
        return number(rng)
    if kind < 4:
        return text(rng, 6)
    if kind == 4:
        return rng.choice([True, False, None])
    if kind < 6:
        return [value(rng, depth + 1) for _ in range(rng.randrange(3))]
    return {text(rng, 4): value(rng, depth + 1) for _ in range(rng.randrange(3))}


def request(rng):
    to = rng.choice(["#ops", "@planner", "@alice/planner", "queue:builds", "#größe"])
    made = {"to": to, "message": text(rng, 8)}
    if rng.random() < 0.3:
        made["priority"] = rng.choice(["now", "next", "low"])
    if rng.random() < 0.8:
        made["meta"] = {text(rng, 4): value(rng, 0) for _ in range(rng.randrange(3))}
    if rng.random() < 0.2:
        made["reply_to_id"] = rng.choice(["", "r1", "01HZX0000000000000000000AA"])
    if rng.random() < 0.3:
        made["mentions"] = [rng.choice(["@ann", "@bob", "@z/y", "@é"]) for _ in range(rng.randrange(4))]
    return made


def es_number(n):
    """Number::toString of ECMAScript, from the shortest digits that Python finds as well."""
    if isinstance(n, int):
        return str(n)
    if n == 0:
        return "0"
    sign = "-" if n < 0 else ""
    mantissa, _, exponent = repr(abs(n)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # The value is 0.DIGITS times ten to the power of `point`.
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len((whole + fraction).lstrip("0")))
    digits = digits.rstrip("0")
    count = len(digits)
    if count <= point <= 21:
        return sign + digits + "0" * (point - count)
    if 0 < point <= 21:
        return sign + digits[:point] + "." + digits[point:]
    if -6 < point <= 0:
        return sign + "0." + "0" * -point + digits
    power = point - 1
    head = digits[0] + ("." + digits[1:] if count > 1 else "")
    return f"{sign}{head}e{'+' if power > 0 else '-'}{abs(power)}"


SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def es_string(s):
    out = ['"']
    for c in s:
        out.append(SHORT.get(c) or (f"\\u{ord(c):04x}" if ord(c) < 0x20 else c))
    return "".join(out) + '"'


def canonical(v):
    if v is None or v is True or v is False:
        return {None: "null", True: "true", False: "false"}[v]
    if isinstance(v, (int, float)):
        return es_number(v)
    if isinstance(v, str):
        return es_string(v)
    if isinstance(v, list):
        return "[" + ",".join(map(canonical, v)) + "]"
    keys = sorted(v, key=lambda k: k.encode("utf-16-be"))
    return "{" + ",".join(es_string(k) + ":" + canonical(v[k]) for k in keys) + "}"


def fingerprint(r):
    to = r["to"]
    if to[0] == "#":
        kind, ref = "topic", to[1:]
    elif to[0] == "@":
        kind, ref = "dm", to[1:]
    else:
        kind, ref = "queue", to.removeprefix("queue:")
    meta = r.get("meta") or {}
    fields = ["1", kind, ref, r.get("reply_to_id", ""), r.get("priority", "next"),
              canonical(meta) if meta else "", hashlib.sha256(r["message"].encode()).hexdigest()]
    mentions = sorted(set(r.get("mentions", [])), key=lambda m: m.encode())
    if mentions:
        fields.append(canonical(mentions))
    return hashlib.sha256("\0".join(fields).encode()).hexdigest()


def main():
    mode, count = sys.argv[1], int(sys.argv[2])
    rng = random.Random(20261115)
    if mode == "generate":
        # Written with other spellings than the canonical one: order kept, spaces, escapes at random.
        style = random.Random(7)
        for _ in range(count):
            made = request(rng)
            spaced = style.random() < 0.5
            sys.stdout.write(json.dumps(made, ensure_ascii=style.random() < 0.5,
                                        separators=(", ", " : ") if spaced else (",", ":")) + "\n")
        return
    for index in range(count):
        made = request(rng)
        ours, theirs = fingerprint(made), sys.stdin.readline().strip()
        if ours != theirs:
            print(f"request {index} differs: {json.dumps(made)}\n  twin {ours}\n  rust {theirs}")
            sys.exit(1)
    print(f"{count} agree")


main()
