//! What is counted of the changes of vectors is derived: a disk that changes it hides no vector.

use crate::fixture::Fixture;
use crate::mended::{mend, senseless};
use crate::vectors::{model, vector, with_vectors};

/// What a bit does to the count, or to what a row says of it.
const CHANGES: [&str; 5] = [
    "UPDATE vector_head SET model_id = '0123456789abcdef'",
    "UPDATE vector_head SET mesh_id = zeroblob(16)",
    "UPDATE vector_metadata SET changed = 0 WHERE key = 'a'",
    "UPDATE vector_metadata SET changed = changed + (1 << 62)",
    "UPDATE vector_head SET changes = changes - 2",
];

async fn found(fixture: &Fixture) -> Vec<String> {
    let mut found = fixture.nearest(&model("one", 2), &[1.0, 0.0]).await;
    found.sort();
    found
}

#[tokio::test]
async fn a_changed_count_hides_no_vector_before_and_behind_the_next_writes() {
    for change in CHANGES {
        for is_in_memory in [false, true] {
            let fixture = with_vectors().await;
            assert_eq!(senseless(&fixture, false), "");
            if is_in_memory {
                assert_eq!(found(&fixture).await, ["a", "b", "c"], "{change}");
            }
            fixture.raw().execute_batch(change).unwrap();
            let said = senseless(&fixture, false);
            assert!(said.contains("vector_head: "), "{change}: {said}");
            if !is_in_memory {
                assert_eq!(found(&fixture).await, ["a", "b", "c"], "{change}");
            }
            // As many as bring a count that was put back to where it was.
            let one = model("one", 2);
            for id in ["d", "e"] {
                fixture.vector(id, id, vector(&one, &[0.5, 0.5], id)).await;
            }
            assert_eq!(found(&fixture).await, ["a", "b", "c", "d", "e"], "{change}");
            fixture.delete_vector("x", "a").await;
            assert_eq!(found(&fixture).await, ["b", "c", "d", "e"], "{change}");
        }
    }
}

#[tokio::test]
async fn a_repair_counts_the_changes_of_vectors_anew() {
    for change in CHANGES {
        let fixture = with_vectors().await;
        fixture.store.stop();
        fixture.raw().execute_batch(change).unwrap();
        let (fixture, _) = mend(fixture);
        assert_eq!(senseless(&fixture, false), "", "{change}");
        assert_eq!(found(&fixture).await, ["a", "b", "c"], "{change}");
    }
}
