//! Finds a seq that comes twice. Costs a push per record until the first one does.

use std::collections::HashMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    No,
    /// The same line once more: an honest repeat.
    Identical,
    /// One writer, one seq, two records: should be impossible.
    SameWriter,
    /// Two writers took one seq.
    OtherWriter,
}

#[derive(Debug, Default)]
pub struct Seen {
    max_seq: u64,
    in_order: Vec<(u64, u32, u32)>,
    writers: HashMap<Box<str>, u32>,
    last_writer: Option<(Box<str>, u32)>,
    /// Built when a seq first comes back.
    by_seq: Option<HashMap<u64, Vec<(u32, u32)>>>,
}

impl Seen {
    pub fn note(&mut self, seq: u64, writer: &str, crc: u32) -> Again {
        let writer = self.number(writer);
        if seq > self.max_seq {
            self.max_seq = seq;
            if let Some(by_seq) = &mut self.by_seq {
                by_seq.entry(seq).or_default().push((writer, crc));
            } else {
                self.in_order.push((seq, writer, crc));
            }
            return Again::No;
        }
        let in_order = &mut self.in_order;
        let by_seq = self.by_seq.get_or_insert_with(|| {
            let mut map: HashMap<u64, Vec<(u32, u32)>> = HashMap::new();
            for (seq, writer, crc) in in_order.drain(..) {
                map.entry(seq).or_default().push((writer, crc));
            }
            map
        });
        let before = by_seq.entry(seq).or_default();
        let told = if before.contains(&(writer, crc)) {
            Again::Identical
        } else if before.iter().any(|(w, _)| *w == writer) {
            Again::SameWriter
        } else if before.is_empty() {
            Again::No
        } else {
            Again::OtherWriter
        };
        if told != Again::Identical {
            before.push((writer, crc));
        }
        told
    }

    /// Whether a record of that writer has this seq.
    pub fn has(&self, seq: u64, writer: &str) -> bool {
        let Some(number) = self.writers.get(writer).copied() else {
            return false;
        };
        match &self.by_seq {
            Some(by_seq) => by_seq
                .get(&seq)
                .is_some_and(|all| all.iter().any(|(w, _)| *w == number)),
            None => self
                .in_order
                .binary_search_by_key(&seq, |entry| entry.0)
                .is_ok_and(|at| self.in_order[at].1 == number),
        }
    }

    /// Whether this very line was one of that writer's.
    pub fn is_by(&self, seq: u64, writer: &str, crc: u32) -> bool {
        let Some(number) = self.writers.get(writer).copied() else {
            return false;
        };
        match &self.by_seq {
            Some(by_seq) => by_seq
                .get(&seq)
                .is_some_and(|all| all.contains(&(number, crc))),
            None => self
                .in_order
                .binary_search_by_key(&seq, |entry| entry.0)
                .is_ok_and(|at| self.in_order[at] == (seq, number, crc)),
        }
    }

    fn number(&mut self, writer: &str) -> u32 {
        if let Some((last, number)) = &self.last_writer
            && &**last == writer
        {
            return *number;
        }
        let next = u32::try_from(self.writers.len()).unwrap_or(u32::MAX);
        let number = *self.writers.entry(writer.into()).or_insert(next);
        self.last_writer = Some((writer.into(), number));
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jn_14_each_kind_of_repeat_is_told_apart() {
        let mut seen = Seen::default();
        for seq in 1..=5 {
            assert_eq!(seen.note(seq, "a", 10), Again::No);
        }
        assert_eq!(seen.note(3, "a", 10), Again::Identical);
        assert_eq!(seen.note(3, "a", 11), Again::SameWriter);
        assert_eq!(seen.note(3, "b", 10), Again::OtherWriter);
        assert_eq!(seen.note(3, "b", 10), Again::Identical);
        assert_eq!(seen.note(6, "b", 1), Again::No);
        assert_eq!(seen.note(6, "b", 1), Again::Identical);
        // Below the largest, but never seen: a gap that is filled late.
        let mut seen = Seen::default();
        assert_eq!(seen.note(9, "a", 1), Again::No);
        assert_eq!(seen.note(4, "a", 1), Again::No);
        assert_eq!(seen.note(4, "a", 1), Again::Identical);
    }
}
