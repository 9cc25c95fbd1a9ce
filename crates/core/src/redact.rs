//! Takes secrets out of text that leaves the process: logs first of all (XC-01).
//!
//! The first line of defence is that nobody writes a secret; this is the second. It knows secrets by
//! the name they stand behind (`token`, `Authorization`, …) and by their look: a long run of
//! base64url is a token or a key, whatever it is called.

use std::borrow::Cow;

/// What stands in a secret's place.
pub const REDACTED: &str = "[redacted]";

/// Shorter than any secret of ours (32 bytes are 43 characters), longer than a ULID or a UUID.
const SECRET_CHARS_MIN: usize = 40;

/// Parts of a name that say that its value is a secret.
const SECRET_NAMES: [&str; 14] = [
    "token",
    "secret",
    "passw",
    "passphrase",
    "authoriz",
    "bearer",
    "cookie",
    "credential",
    "invite",
    "nonce",
    "private",
    "api_key",
    "signing_key",
    "sealing_key",
];

/// Whether a field or parameter of this name holds a secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    SECRET_NAMES.iter().any(|part| name.contains(part))
}

/// The text without what looks like a secret. Text without one is handed back as it is.
pub fn redact(text: &str) -> Cow<'_, str> {
    if text.contains("PRIVATE KEY-----") {
        return Cow::Borrowed(REDACTED);
    }
    match without_userinfo(text) {
        None => without_secrets(text).map_or(Cow::Borrowed(text), Cow::Owned),
        Some(shorter) => Cow::Owned(without_secrets(&shorter).unwrap_or(shorter)),
    }
}

/// `None` when there is nothing to take out.
fn without_secrets(text: &str) -> Option<String> {
    let mut shown = String::new();
    let mut kept_to = 0;
    let mut word_before = "";
    for (start, word) in words(text) {
        let behind_name = is_secret_name(word_before) && is_value_of(text, start);
        if behind_name && !is_scheme(word) || looks_secret(word) {
            shown.push_str(&text[kept_to..start]);
            shown.push_str(REDACTED);
            kept_to = start + word.len();
        }
        word_before = word;
    }
    shown.push_str(&text[kept_to..]);
    (kept_to > 0).then_some(shown)
}

/// Runs of the characters that base64, base64url and names are made of, with their places.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '+' | '~');
    let mut place = 0;
    text.split_inclusive(move |c| !is_word(c))
        .map(move |piece| {
            let start = place;
            place += piece.len();
            (start, piece.trim_end_matches(|c| !is_word(c)))
        })
        .filter(|(_, word)| !word.is_empty())
}

/// A name is followed by its value through `=`, `:`, quotes or a blank: `token=x`, `Bearer x`,
/// `"token": "x"`. Prose ("the token is wrong") has a blank, too, so a short plain word stays.
fn is_value_of(text: &str, start: usize) -> bool {
    let before = text[..start].trim_end_matches(['"', '\'', ' ', '\\']);
    before.ends_with(['=', ':'])
}

/// `Authorization: Bearer x`: the scheme is no secret, and what follows it is looked at by itself.
fn is_scheme(word: &str) -> bool {
    word.eq_ignore_ascii_case("bearer") || word.eq_ignore_ascii_case("basic")
}

/// Long, of mixed case, and not a digest in hex.
fn looks_secret(word: &str) -> bool {
    word.len() >= SECRET_CHARS_MIN
        && word.bytes().any(|b| b.is_ascii_lowercase())
        && word.bytes().any(|b| b.is_ascii_uppercase())
        && !word.bytes().all(|b| b.is_ascii_hexdigit())
}

/// `scheme://user:password@host` without user and password; `None` when there is none.
fn without_userinfo(text: &str) -> Option<String> {
    let mut pieces = text.split("://");
    let mut shown = pieces.next()?.to_owned();
    let mut is_changed = false;
    for piece in pieces {
        shown.push_str("://");
        let authority = piece.split(['/', ' ', '"', '?']).next().unwrap_or_default();
        match authority.rsplit_once('@') {
            Some((userinfo, _)) => {
                shown.push_str(REDACTED);
                shown.push_str(&piece[userinfo.len()..]);
                is_changed = true;
            }
            None => shown.push_str(piece),
        }
    }
    is_changed.then_some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "q7Zk-0fWcP3xV9sLmT2yR8uN5bHdJ6aG1eKoXiYwQzA";

    #[test]
    fn xc_01_a_secret_is_taken_out_wherever_it_stands() {
        for text in [
            TOKEN.to_owned(),
            format!("Authorization: Bearer {TOKEN}"),
            format!("authorization: {TOKEN}"),
            format!("GET /v1/health?token={TOKEN}&x=1"),
            format!("{{\"local_token\": \"{TOKEN}\"}}"),
            format!("{{\\\"token\\\":\\\"{TOKEN}\\\"}}"),
            format!("the line {TOKEN}, cut"),
            format!("ws://user:{TOKEN}@broker.example/mesh"),
            format!("-----BEGIN PRIVATE KEY-----\n{TOKEN}\n-----END PRIVATE KEY-----"),
        ] {
            let shown = redact(&text);
            assert!(!shown.contains(TOKEN), "{text} → {shown}");
            assert!(shown.contains(REDACTED), "{text} → {shown}");
        }
    }

    #[test]
    fn xc_01_short_secrets_are_known_by_their_name() {
        for (text, expected) in [
            ("password=hunter2 and on", "password=[redacted] and on"),
            ("invite: abc-123", "invite: [redacted]"),
            ("x-api-key: k1", "x-api-key: [redacted]"),
            ("ws://ada:pw@host:1/x", "ws://[redacted]@host:1/x"),
            (
                "a ws://u:p@h b http://v@i/ c",
                "a ws://[redacted]@h b http://[redacted]@i/ c",
            ),
        ] {
            assert_eq!(redact(text), expected);
        }
        for name in [
            "token",
            "local_token",
            "Authorization",
            "X-Api-Key",
            "inviteCode",
        ] {
            assert!(is_secret_name(name), "{name}");
        }
        for name in [
            "id",
            "mesh",
            "client_message_id",
            "idempotency_key",
            "why",
            "key",
        ] {
            assert!(!is_secret_name(name), "{name}");
        }
    }

    #[test]
    fn plain_words_ids_and_digests_stay() {
        for text in [
            "the token is wrong",
            "a request carried a token in its query; refused",
            "no row has the id 01M7GQ6XBBY15R5SY5B0HEGZYK",
            "8c1c17d88c1c17d88c1c17d88c1c17d88c1c17d88c1c17d88c1c17d88c1c17d8",
            "550e8400-e29b-41d4-a716-446655440000",
            "ws://127.0.0.1:4000/ refused the connection (os error 111)",
            "é ∀ \u{1b}[31m",
            "",
        ] {
            assert_eq!(redact(text), text);
        }
    }
}
