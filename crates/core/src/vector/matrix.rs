//! The vectors of one model in memory, and the search for the nearest of them.

use std::collections::HashMap;
use std::sync::Arc;

use super::embedding::Embedding;
use super::kernel::{differences, picked_products, products};
use super::sketch::{BITS, Sketcher, WORDS};
use super::top::Top;
use crate::limits::VECTOR_TWO_STAGE_ROWS_MIN;

/// Rows whose products are taken at once.
const BLOCK_ROWS: usize = 512;
/// At least so many of the sketched rows are measured exactly.
const CANDIDATES_MIN: usize = 1000;
/// And one in so many.
const CANDIDATES_ONE_IN: usize = 100;

/// Which row it is, and what decides between equal distances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    pub place: i64,
    pub key: Arc<str>,
    pub peer: Arc<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// Every row.
    Exact,
    /// Among many rows only those whose sketches are near are measured; near enough for a search.
    Sketched,
}

#[derive(Debug, Clone)]
pub struct Matrix {
    dim: usize,
    labels: Vec<Label>,
    /// Of length one, one after the other.
    rows: Vec<f32>,
    places: HashMap<i64, usize>,
    /// Made when the rows become many.
    sketches: Option<Sketches>,
}

#[derive(Debug, Clone)]
struct Sketches {
    sketcher: Sketcher,
    words: Vec<u64>,
}

impl Matrix {
    pub fn new(dim: usize) -> Self {
        Self {
            dim,
            labels: Vec::new(),
            rows: Vec::new(),
            places: HashMap::new(),
            sketches: None,
        }
    }

    pub fn len(&self) -> usize {
        self.labels.len()
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Memory that it holds, about.
    pub fn bytes(&self) -> usize {
        let text: usize = self.labels.iter().map(|label| label.key.len()).sum();
        let row = size_of::<Label>() + 2 * size_of::<(i64, usize)>();
        let sketches = self.sketches.as_ref().map_or(0, |s| s.words.capacity() * 8);
        self.rows.capacity() * size_of::<f32>() + self.labels.capacity() * row + text + sketches
    }

    /// Puts the row of that place in, or another vector under it. One of another dimension is not
    /// taken: `false`.
    pub fn put(&mut self, label: Label, embedding: &Embedding) -> bool {
        if embedding.dim() != self.dim {
            return false;
        }
        self.remove(label.place);
        let unit = embedding.unit();
        if let Some(sketches) = &mut self.sketches {
            sketches.words.extend(sketches.sketcher.sketch(&unit));
        }
        self.places.insert(label.place, self.labels.len());
        self.labels.push(label);
        self.rows.extend(unit);
        self.sketch_if_many();
        true
    }

    pub fn remove(&mut self, place: i64) {
        let Some(at) = self.places.remove(&place) else {
            return;
        };
        let last = self.labels.len() - 1;
        self.labels.swap_remove(at);
        move_last(&mut self.rows, at, last, self.dim);
        if let Some(sketches) = &mut self.sketches {
            move_last(&mut sketches.words, at, last, WORDS);
        }
        if let Some(moved) = self.labels.get(at) {
            self.places.insert(moved.place, at);
        }
    }

    /// Empties it, keeping its memory.
    pub fn clear(&mut self) {
        self.labels.clear();
        self.rows.clear();
        self.places.clear();
        self.sketches = None;
    }

    fn sketch_if_many(&mut self) {
        if self.sketches.is_some() || self.len() < VECTOR_TWO_STAGE_ROWS_MIN {
            return;
        }
        let sketcher = Sketcher::new(self.dim);
        let rows = self.rows.chunks_exact(self.dim);
        let words = rows.flat_map(|row| sketcher.sketch(row)).collect();
        self.sketches = Some(Sketches { sketcher, words });
    }

    /// Offers the nearest rows. A query of another dimension has none.
    pub fn search(&self, query: &Embedding, scan: Scan, top: &mut Top) {
        if query.dim() != self.dim {
            return;
        }
        let query = query.unit();
        match (&self.sketches, scan) {
            (Some(sketches), Scan::Sketched) => self.near(sketches, &query, top),
            _ => self.all(&query, top),
        }
    }

    fn all(&self, query: &[f32], top: &mut Top) {
        let mut found = [0.0; BLOCK_ROWS];
        let blocks = self.rows.chunks(BLOCK_ROWS * self.dim);
        for (rows, labels) in blocks.zip(self.labels.chunks(BLOCK_ROWS)) {
            products(rows, query, &mut found);
            for (product, label) in found.iter().zip(labels) {
                let distance = distance(*product);
                if distance <= top.reach() {
                    top.offer(distance, label);
                }
            }
        }
    }

    /// Everybody up to the number of differing bits within which enough rows lie: where rows stand in
    /// memory makes no difference.
    fn near(&self, sketches: &Sketches, query: &[f32], top: &mut Top) {
        let sketch = sketches.sketcher.sketch(query);
        let mut found = vec![0; self.len()];
        differences(&sketches.words, &sketch, &mut found);
        let mut counts = [0_usize; BITS + 1];
        for differing in &found {
            counts[*differing as usize] += 1;
        }
        let wanted = CANDIDATES_MIN.max(self.len() / CANDIDATES_ONE_IN);
        let mut within = 0;
        let reach = counts.iter().position(|count| {
            within += count;
            within >= wanted
        });
        let reach = reach.unwrap_or(BITS);
        let rows = found.iter().enumerate();
        let is_near = |(at, differing): (usize, &u32)| (*differing as usize <= reach).then_some(at);
        let picked: Vec<usize> = rows.filter_map(is_near).collect();
        let mut found = vec![0.0; picked.len()];
        picked_products(&self.rows, &picked, query, &mut found);
        for (product, at) in found.into_iter().zip(picked) {
            top.offer(distance(product), &self.labels[at]);
        }
    }
}

/// Cosine distance, 0 to 2. Rounding may not lead out of that.
fn distance(product: f32) -> f32 {
    (1.0 - product).clamp(0.0, 2.0)
}

/// The last row takes the place of the one that goes.
fn move_last<T: Copy>(rows: &mut Vec<T>, at: usize, last: usize, width: usize) {
    rows.copy_within(last * width..(last + 1) * width, at * width);
    rows.truncate(last * width);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::kernel::product;
    use super::*;
    use crate::vector::{Hit, hashed};

    fn label(place: i64, key: &str, peer: &str) -> Label {
        let (key, peer) = (key.into(), peer.into());
        Label { place, key, peer }
    }

    fn nearest(matrix: &Matrix, query: &Embedding, scan: Scan, limit: usize) -> Vec<Hit> {
        let mut top = Top::new(limit);
        matrix.search(query, scan, &mut top);
        top.into_hits()
    }

    /// Every row measured by the plain loop, all of them sorted.
    fn brute_force(rows: &[(Label, Embedding)], query: &Embedding, limit: usize) -> Vec<Hit> {
        let measure = |(label, row): &(Label, Embedding)| Hit {
            distance: distance(product(&row.unit(), &query.unit())),
            label: label.clone(),
        };
        let mut hits: Vec<Hit> = rows.iter().map(measure).collect();
        hits.sort_by(|a, b| {
            let by_label = |hit: &Hit| (hit.label.key.clone(), hit.label.peer.clone());
            a.distance
                .total_cmp(&b.distance)
                .then_with(|| by_label(a).cmp(&by_label(b)))
        });
        hits.truncate(limit);
        hits
    }

    /// Few values, so that many distances are equal.
    fn any_embedding(dim: usize) -> impl Strategy<Value = Embedding> {
        proptest::collection::vec(-1..=1_i8, dim).prop_filter_map("points nowhere", |numbers| {
            Embedding::new(numbers.into_iter().map(f32::from).collect()).ok()
        })
    }

    proptest! {
        #[test]
        fn the_scan_equals_brute_force_with_ties_and_after_changes(
            rows in proptest::collection::vec((any_embedding(3), "[a-c]", "[xyz]"), 1..60),
            gone in proptest::collection::vec(0..60_i64, 0..20),
            query in any_embedding(3), limit in 0..12_usize
        ) {
            let mut matrix = Matrix::new(3);
            let mut left = Vec::new();
            for (place, (embedding, key, peer)) in (0_i64..).zip(rows) {
                // First something else, then this: the later one counts.
                let wrong = Embedding::new(vec![1.0, 2.0, 3.0]).unwrap();
                let label = label(place, &format!("{key}{place}"), &peer);
                prop_assert!(matrix.put(label.clone(), &wrong));
                prop_assert!(matrix.put(label.clone(), &embedding));
                left.push((label, embedding));
            }
            for place in gone {
                matrix.remove(place);
                left.retain(|(label, _)| label.place != place);
            }
            prop_assert_eq!(matrix.len(), left.len());
            prop_assert_eq!(nearest(&matrix, &query, Scan::Exact, limit), brute_force(&left, &query, limit));
        }
    }

    #[test]
    fn another_dimension_is_neither_kept_nor_found() {
        let mut matrix = Matrix::new(2);
        let flat = Embedding::new(vec![1.0, 0.0]).unwrap();
        let deep = Embedding::new(vec![1.0, 0.0, 0.0]).unwrap();
        assert!(!matrix.put(label(1, "a", "p"), &deep));
        assert!(matrix.put(label(1, "a", "p"), &flat));
        assert!(nearest(&matrix, &deep, Scan::Exact, 5).is_empty());
        assert!(nearest(&matrix, &flat, Scan::Exact, 5)[0].distance < 1e-9);
    }

    /// Sentences of a made-up office, with as many near neighbours as far ones.
    fn sentence(n: usize) -> String {
        const WHO: [&str; 12] = [
            "planner", "coder", "reviewer", "tester", "deployer", "writer", "auditor", "broker",
            "daemon", "console", "runner", "keeper",
        ];
        const DID: [&str; 14] = [
            "failed to build",
            "merged",
            "reverted",
            "released",
            "measured",
            "blocked",
            "approved",
            "rejected",
            "archived",
            "restored",
            "renamed",
            "migrated",
            "paused",
            "inspected",
        ];
        const WHAT: [&str; 16] = [
            "the billing service",
            "a migration of orders",
            "the login page",
            "the search index",
            "an old backup",
            "the nightly report",
            "the rate limiter",
            "a flaky test",
            "the message queue",
            "the release notes",
            "the audit log",
            "a broken link",
            "the cache",
            "a schema change",
            "the vector table",
            "the invite flow",
        ];
        const WHY: [&str; 11] = [
            "because of a timeout",
            "after a long review",
            "for the second time",
            "without asking",
            "on the staging machine",
            "in a hurry",
            "to save memory",
            "before the deadline",
            "as agreed on Monday",
            "when the disk was full",
            "by mistake",
        ];
        let pick = |list: &[&'static str], by: usize| list[by % list.len()];
        let m = n.wrapping_mul(2_654_435_761) >> 7;
        format!(
            "{} {} {} {} in ticket {}",
            pick(&WHO, m),
            pick(&DID, m / 12),
            pick(&WHAT, m / 168),
            pick(&WHY, m / 2688),
            n / 3
        )
    }

    fn corpus(rows: usize) -> (Matrix, Vec<(Label, Embedding)>) {
        let mut matrix = Matrix::new(384);
        let mut all = Vec::new();
        for n in 0..rows {
            let label = label(i64::try_from(n).unwrap(), &format!("k{n:06}"), "p");
            let embedding = hashed(&sentence(n)).unwrap();
            assert!(matrix.put(label.clone(), &embedding));
            all.push((label, embedding));
        }
        (matrix, all)
    }

    #[test]
    fn the_two_stage_search_finds_ninety_nine_of_a_hundred_on_hashed_text() {
        let (matrix, _) = corpus(VECTOR_TWO_STAGE_ROWS_MIN + 5_000);
        assert!(matrix.sketches.is_some());
        let (mut found, mut wanted) = (0, 0);
        for n in 0..100 {
            let query = hashed(&sentence(n * 797 + 13)).unwrap();
            let exact = nearest(&matrix, &query, Scan::Exact, 10);
            let near = nearest(&matrix, &query, Scan::Sketched, 10);
            wanted += exact.len();
            found += exact.iter().filter(|hit| near.contains(hit)).count();
        }
        assert!(found * 100 >= wanted * 99, "{found} of {wanted}");
    }

    #[test]
    fn a_hundred_thousand_rows_give_the_top_ten_of_brute_force() {
        let mut matrix = Matrix::new(384);
        let mut rows = Vec::new();
        let mut state = 7_u64;
        for n in 0..100_000 {
            let mut next = || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                f32::from(i16::try_from((state >> 48) & 0x7fff).unwrap()) / 16_384.0 - 1.0
            };
            let embedding = Embedding::new((0..384).map(|_| next()).collect()).unwrap();
            let label = label(n, &format!("k{n}"), "p");
            matrix.put(label.clone(), &embedding);
            rows.push((label, embedding));
        }
        for at in [0, 77_777] {
            let query = &rows[at].1;
            let hits = nearest(&matrix, query, Scan::Exact, 10);
            assert_eq!(hits, brute_force(&rows, query, 10));
            assert_eq!(hits[0].label, rows[at].0);
        }
    }
}
