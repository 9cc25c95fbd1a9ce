//! The line and the class rules, corrupted in every way that one record can be.
#![cfg(test)]

use super::*;
use crate::action::Need;

fn sample(payload: Option<&RawValue>) -> Record<'_> {
    Record {
        v: 2,
        seq: 18_342,
        ts: "2026-06-10T14:03:22.114Z".into(),
        writer: "w_31416-9f3c2a".into(),
        agent: "claude-code".into(),
        agent_id: None,
        user: Some("jo".into()),
        action: Action::Update,
        item_type: "plan".into(),
        item_id: Some("pln_1".into()),
        entity_rev: Some(7),
        summary: Some("a \"quoted\"\nline".into()),
        payload,
        payload_ref: None,
        redacted: None,
        request: None,
        batch: Batch {
            id: "b1".into(),
            i: 0,
            n: 1,
        },
    }
}

fn line_of(record: &Record<'_>) -> Vec<u8> {
    let mut buffer = Vec::new();
    let encoded = record.encode_into(&mut buffer).unwrap();
    assert_eq!((buffer[0], buffer[buffer.len() - 1]), (b'\n', b'\n'));
    buffer[encoded.start..encoded.end].to_vec()
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

#[test]
fn a_record_round_trips_and_its_checksum_is_castagnoli_over_the_line_without_it() {
    let payload = raw(r#"{"title":"x","n":[1,2]}"#);
    let line = line_of(&sample(Some(&payload)));
    let (back, crc) = decode(&line).unwrap();
    assert_eq!(back.seq, 18_342);
    assert_eq!(back.payload.unwrap().get(), payload.get());
    assert_eq!(back.summary.unwrap().as_str(), "a \"quoted\"\nline");
    // A second way to the same number: cut the field out of the text, checksum what remains.
    let text = String::from_utf8(line).unwrap();
    let without = text.replace(&format!(",\"crc\":\"{crc:08x}\""), "");
    assert_eq!(crc32c::crc32c(without.as_bytes()), crc);
    assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
}

#[test]
fn c26_every_flipped_bit_and_every_cut_is_seen() {
    let payload = raw(r#"{"title":"the body of it"}"#);
    let line = line_of(&sample(Some(&payload)));
    assert!(decode(&line).is_ok());
    for at in 0..line.len() {
        for bit in 0..8 {
            let mut bad = line.clone();
            bad[at] ^= 1 << bit;
            assert!(decode(&bad).is_err(), "bit {bit} of byte {at}");
        }
        assert!(decode(&line[..at]).is_err(), "cut at {at}");
        assert!(decode(&line[at + 1..]).is_err(), "begins at {at}");
    }
}

#[test]
fn jn_24_a_line_above_the_cap_is_refused_by_writer_and_reader() {
    let payload = raw(&format!("\"{}\"", "x".repeat(LINE_BYTES_MAX)));
    let mut buffer = Vec::new();
    let refused = sample(Some(&payload)).encode_into(&mut buffer);
    assert_eq!(refused, Err(LineFault::TooLong));
    assert_eq!(
        decode(&buffer[1..buffer.len() - 1]).unwrap_err(),
        LineFault::TooLong
    );
}

#[test]
fn t_61_a_newline_in_a_field_stays_inside_its_line() {
    let mut record = sample(None);
    record.summary = Some("x\n{\"v\":2,\"seq\":1}\n".into());
    record.agent = "a\r\nb".into();
    assert!(!line_of(&record).contains(&b'\n'));
}

#[test]
fn impossible_places_and_other_versions_do_not_count() {
    let payload = raw("{}");
    let bad = |change: &dyn Fn(&mut Record<'_>)| {
        let mut record = sample(Some(&payload));
        change(&mut record);
        decode(&line_of(&record)).unwrap_err()
    };
    assert_eq!(bad(&|r| r.v = 1), LineFault::Version);
    assert!(matches!(bad(&|r| r.v = 3), LineFault::Newer(Some(_))));
    assert_eq!(bad(&|r| r.batch.i = 1), LineFault::Batch);
    assert_eq!(bad(&|r| r.batch.n = 0), LineFault::Batch);
    assert_eq!(bad(&|r| r.batch.n = 5000), LineFault::Batch);
    assert_eq!(bad(&|r| r.seq = 0), LineFault::Batch);
}

#[test]
fn a_sound_line_that_this_build_does_not_know_is_told_from_damage() {
    let sealed = |text: &str| {
        let open = text.strip_suffix('}').unwrap();
        let crc = crc_of(open.as_bytes());
        format!("{open},\"crc\":\"{crc:08x}\"}}").into_bytes()
    };
    let known = String::from_utf8(line_of(&sample(None))).unwrap();
    let open = &known[..known.len() - CRC_SUFFIX_BYTES];
    let name = format!("\"action\":\"{}\"", sample(None).action.as_str());
    let unknown = format!("{open}}}").replace(&name, "\"action\":\"dream\"");
    for (text, fault) in [
        (unknown.as_str(), LineFault::Newer(Some(sample(None).seq))),
        (r#"{"v":3,"seq":1,"other":[]}"#, LineFault::Newer(Some(1))),
        (r#"{"v":3,"seq":"1-7"}"#, LineFault::Newer(None)),
        (
            r#"{"v":2,"seq":1,"action":"create"}"#,
            LineFault::NotARecord,
        ),
        (r#"{"v":1,"seq":1,"action":"dream"}"#, LineFault::Version),
        (r#"{"seq":1}"#, LineFault::NotARecord),
    ] {
        assert_eq!(decode(&sealed(text)).unwrap_err(), fault, "{text}");
    }
    let mut torn = sealed(&unknown);
    torn[20] ^= 1;
    assert_eq!(decode(&torn).unwrap_err(), LineFault::CrcMismatch);
}

/// Every action, every combination of the three parts, every mode: as the table says.
#[test]
fn jn_27_payload_id_and_revision_are_as_the_class_says() {
    let payload = raw("{}");
    let mut seen = 0;
    for mode in [Mode::Off, Mode::Dual, Mode::Primary, Mode::RegistryPrimary] {
        for action in Action::ALL {
            for bits in 0..8_u8 {
                let (p, id, rev) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
                let is_meta = action.class(mode) == ActionClass::JournalMeta;
                let mut record = sample(p.then_some(&*payload));
                record.action = *action;
                record.item_type = if is_meta { "journal" } else { "plan" }.into();
                record.item_id = id.then(|| "x".into());
                record.entity_rev = rev.then_some(1);
                let needs = action.needs(mode);
                let mut allowed = needs.payload.allows(p)
                    && needs.item_id.allows(id)
                    && needs.entity_rev.allows(rev);
                if needs.payload == Need::Optional && p && !rev {
                    allowed = false;
                }
                let told = record.check(mode);
                assert_eq!(
                    told.is_ok(),
                    allowed,
                    "{action:?} {mode:?} {bits:03b}: {told:?}"
                );
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 4 * 42 * 8);
}

#[test]
fn spelling_is_checked_beyond_the_class() {
    let payload = raw("{}");
    let fault = |change: &dyn Fn(&mut Record<'_>)| {
        let mut record = sample(Some(&payload));
        change(&mut record);
        record.check(Mode::Primary).unwrap_err()
    };
    assert_eq!(
        fault(&|r| r.item_id = Some("../x".into())),
        RuleFault::IdSpelling
    );
    assert_eq!(
        fault(&|r| r.item_type = "Plan".into()),
        RuleFault::TypeSpelling
    );
    assert_eq!(
        fault(&|r| r.item_type = "journal".into()),
        RuleFault::JournalType
    );
    assert_eq!(fault(&|r| r.entity_rev = Some(0)), RuleFault::RevZero);
    let reference = || {
        Some(PayloadRef {
            sha256: "../../etc/passwd".into(),
            bytes: 1,
        })
    };
    assert_eq!(
        fault(&|r| r.payload_ref = reference()),
        RuleFault::TwoPayloads
    );
    let both = fault(&|r| {
        r.payload = None;
        r.payload_ref = reference();
    });
    assert_eq!(both, RuleFault::HashSpelling);
}
