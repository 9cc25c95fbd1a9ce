//! A record as its line, byte for byte as `serde_json` writes it: names and marks are copied, only texts are looked through.
//!
//! Every record is answered behind this, and 64 of them in one group.

use serde_json::value::RawValue;

use crate::format::{CRC_OPEN, LINE_BYTES_MAX};
use crate::record::{Batch, Encoded, LineFault, PayloadRef, Record, RequestRef, crc_of};
use crate::text::write_string;

fn put_text(out: &mut Vec<u8>, name: &str, text: &str) {
    out.extend_from_slice(name.as_bytes());
    write_string(text, out);
}

/// The most digits that a number has.
const DIGITS_MAX: usize = 20;

fn put_number(out: &mut Vec<u8>, name: &str, number: u64) {
    out.extend_from_slice(name.as_bytes());
    let mut digits = [b'0'; DIGITS_MAX];
    let mut first = DIGITS_MAX;
    let mut rest = number;
    while first == DIGITS_MAX || rest > 0 {
        first -= 1;
        digits[first] += u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
    out.extend_from_slice(&digits[first..]);
}

/// Eight digits, without a text in between.
fn put_hex(out: &mut Vec<u8>, crc: u32) {
    for shift in (0..u32::BITS).step_by(4).rev() {
        out.push(b"0123456789abcdef"[(crc >> shift & 0xf) as usize]);
    }
}

impl Record<'_> {
    /// Appends the framed line, `LF json LF`; the bytes of the line alone are `range`.
    pub fn encode_into(&self, buffer: &mut Vec<u8>) -> Result<Encoded, LineFault> {
        self.encode_with(None, buffer)
    }

    /// The same with the text of a document as its payload, which was written by this program and is not read again.
    pub(crate) fn encode_with(
        &self,
        payload: Option<&str>,
        buffer: &mut Vec<u8>,
    ) -> Result<Encoded, LineFault> {
        buffer.push(b'\n');
        let start = buffer.len();
        self.put_open(payload, buffer);
        // The closing brace comes behind the checksum.
        let crc = crc_of(&buffer[start..]);
        buffer.extend_from_slice(CRC_OPEN);
        put_hex(buffer, crc);
        buffer.extend_from_slice(b"\"}");
        let end = buffer.len();
        buffer.push(b'\n');
        if end - start > LINE_BYTES_MAX {
            return Err(LineFault::TooLong);
        }
        Ok(Encoded { start, end, crc })
    }

    /// The envelope in the order of its fields, without the brace that closes it.
    fn put_open(&self, text: Option<&str>, out: &mut Vec<u8>) {
        // Field by field: one that is added does not compile until it is written here too.
        let Record {
            v,
            seq,
            ts,
            writer,
            agent,
            agent_id,
            user,
            action,
            item_type,
            item_id,
            entity_rev,
            summary,
            payload,
            payload_ref,
            redacted,
            request,
            batch: Batch { id, i, n },
        } = self;
        put_number(out, "{\"v\":", u64::from(*v));
        put_number(out, ",\"seq\":", *seq);
        put_text(out, ",\"ts\":", ts.as_str());
        put_text(out, ",\"writer\":", writer.as_str());
        put_text(out, ",\"agent\":", agent.as_str());
        for (name, text) in [(",\"agent_id\":", agent_id), (",\"user\":", user)] {
            if let Some(text) = text {
                put_text(out, name, text.as_str());
            }
        }
        put_text(out, ",\"action\":", action.as_str());
        put_text(out, ",\"item_type\":", item_type.as_str());
        if let Some(item_id) = item_id {
            put_text(out, ",\"item_id\":", item_id.as_str());
        }
        if let Some(entity_rev) = entity_rev {
            put_number(out, ",\"entity_rev\":", *entity_rev);
        }
        if let Some(summary) = summary {
            put_text(out, ",\"summary\":", summary.as_str());
        }
        if let Some(document) = text.or(payload.map(RawValue::get)) {
            out.extend_from_slice(b",\"payload\":");
            out.extend_from_slice(document.as_bytes());
        }
        if let Some(PayloadRef { sha256, bytes }) = payload_ref {
            put_text(out, ",\"payload_ref\":{\"sha256\":", sha256.as_str());
            put_number(out, ",\"bytes\":", *bytes);
            out.push(b'}');
        }
        if let Some(redacted) = redacted {
            put_number(out, ",\"redacted\":", u64::from(*redacted));
        }
        if let Some(RequestRef { id, sha256 }) = request {
            put_text(out, ",\"request\":{\"id\":", id.as_str());
            if let Some(sha256) = sha256 {
                put_text(out, ",\"sha256\":", sha256.as_str());
            }
            out.push(b'}');
        }
        put_text(out, ",\"batch\":{\"id\":", id.as_str());
        put_number(out, ",\"i\":", u64::from(*i));
        put_number(out, ",\"n\":", u64::from(*n));
        out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Action;

    /// Each optional field there or not, each action, texts that must be escaped.
    #[test]
    fn the_bytes_are_those_that_serde_json_writes() {
        let payload = RawValue::from_string(r#"{"a":[1,"\n",{}],"é":null}"#.to_owned()).unwrap();
        let texts = ["", "plain", "a \"quoted\"\n\u{1}line\\", "日本語 é \u{7f}"];
        let mut seen = 0;
        for bits in 0..512_u32 {
            let has = |bit: u32| bits & (1 << bit) != 0;
            let text = |n: u32| texts[(bits + n) as usize % texts.len()];
            let actions = Action::ALL.len();
            let record = Record {
                v: 2,
                seq: u64::MAX >> (bits % 64),
                ts: text(0).into(),
                writer: text(1).into(),
                agent: text(2).into(),
                agent_id: has(0).then(|| text(3).into()),
                user: has(1).then(|| text(4).into()),
                action: Action::ALL[bits as usize % actions],
                item_type: text(5).into(),
                item_id: has(2).then(|| text(6).into()),
                entity_rev: has(3).then_some(u64::from(bits)),
                summary: has(4).then(|| text(7).into()),
                payload: has(5).then_some(&*payload),
                payload_ref: has(6).then(|| PayloadRef {
                    sha256: text(8).into(),
                    bytes: u64::from(bits) << 32,
                }),
                redacted: has(0).then_some(1),
                request: has(7).then(|| RequestRef {
                    id: text(10).into(),
                    sha256: has(8).then(|| text(11).into()),
                }),
                batch: Batch {
                    id: text(9).into(),
                    i: bits,
                    n: u32::MAX - bits,
                },
            };
            let mut framed = Vec::new();
            let place = record.encode_into(&mut framed).unwrap();
            let mut whole = serde_json::to_string(&record).unwrap();
            whole.pop();
            let expected = format!("\n{whole},\"crc\":\"{:08x}\"}}\n", place.crc);
            assert_eq!(String::from_utf8(framed).unwrap(), expected);
            seen += 1;
        }
        assert_eq!(seen, 512);
    }
}
