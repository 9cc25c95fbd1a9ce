//! Searching the inbox: what is found, in which order, and that no query breaks anything.

use heddle_core::names::{MemberName, TopicName};
use heddle_store::{AckedItems, InboxFilter, NewInboxRow, SearchQuery};

use crate::fixture::{Fixture, agent, at};

/// In these tests the envelope is the body.
fn body_of(envelope: &[u8]) -> Option<String> {
    String::from_utf8(envelope.to_vec()).ok()
}

fn coder() -> InboxFilter {
    InboxFilter {
        mesh: None,
        agent: Some(agent("coder")),
        after: None,
        since: None,
        topic: None,
        from_member: None,
        from_agent: None,
        acked: AckedItems::None,
        limit: 100,
        bytes_max: usize::MAX,
    }
}

impl Fixture {
    async fn received(&self, bodies: &[&str]) {
        let from = self.store.last_arrival().await.unwrap();
        let items: Vec<NewInboxRow> = (from + 1..)
            .zip(bodies)
            .map(|(n, body)| NewInboxRow {
                envelope: body.as_bytes().to_vec(),
                ..self.item("coder", &format!("m{n}"), at(1, n.cast_unsigned()))
            })
            .collect();
        self.store.receive(self.mesh, items).await.unwrap();
    }

    async fn indexed(&self) -> usize {
        let mut count = 0;
        loop {
            let chunk = self.store.inbox_index_chunk(body_of).await.unwrap();
            if chunk == 0 {
                return count;
            }
            count += chunk;
        }
    }

    async fn found(&self, typed: &str) -> Vec<i64> {
        let query = SearchQuery::parse(typed).unwrap();
        let found = self.store.inbox_search(query, None, coder()).await.unwrap();
        found.rows.iter().map(|row| row.arrival).collect()
    }
}

#[tokio::test]
async fn words_phrases_prefixes_topics_and_senders_are_found_newest_first() {
    let fixture = Fixture::new();
    fixture
        .received(&[
            "the deploy failed",
            "deploy is fine",
            "größe zählt",
            "fine deploy",
        ])
        .await;
    let mut posted = fixture.item("coder", "t", at(1, 9));
    posted.topic = TopicName::parse("ops-room").ok();
    posted.sender_name = MemberName::parse("carol").unwrap();
    let elsewhere = NewInboxRow {
        envelope: b"deploy here too".to_vec(),
        ..fixture.item("tester", "e", at(1, 10))
    };
    let batch = vec![posted, elsewhere];
    fixture.store.receive(fixture.mesh, batch).await.unwrap();
    assert_eq!(
        fixture.found("deploy").await,
        [] as [i64; 0],
        "not yet indexed"
    );
    assert_eq!(fixture.indexed().await, 6);
    assert_eq!(fixture.indexed().await, 0);
    for (typed, expected) in [
        ("deploy", &[4, 2, 1][..]),
        ("DEPLOY fine", &[4, 2]),
        ("\"deploy is\"", &[2]),
        ("\"fine deploy\"", &[4]),
        ("dep*", &[4, 2, 1]),
        ("grosse", &[]),
        ("große", &[3]),
        ("deploy OR fine", &[]),
        ("grö*", &[3]),
        ("ops", &[5]),
        ("carol", &[5]),
        ("alice planner deploy", &[4, 2, 1]),
        ("missing", &[]),
    ] {
        assert_eq!(fixture.found(typed).await, expected, "{typed}");
    }
}

#[tokio::test]
async fn a_page_of_a_search_goes_on_behind_its_last_item_whatever_came_meanwhile() {
    let fixture = Fixture::new();
    let bodies: Vec<String> = (0..9).map(|n| format!("note number {n}")).collect();
    fixture
        .received(&bodies.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
    fixture.indexed().await;
    let mut seen = Vec::new();
    let mut before = None;
    loop {
        let query = SearchQuery::parse("note").unwrap();
        let page = InboxFilter {
            limit: 4,
            ..coder()
        };
        let rows = fixture
            .store
            .inbox_search(query, before, page)
            .await
            .unwrap();
        assert_eq!(rows.more, rows.rows.len() == 4 && seen.len() < 5);
        let rows = rows.rows;
        let Some(last) = rows.last() else { break };
        before = Some(last.arrival);
        seen.extend(rows.iter().map(|row| row.arrival));
        fixture.received(&["a note in between"]).await;
        fixture.indexed().await;
    }
    assert_eq!(seen, [9, 8, 7, 6, 5, 4, 3, 2, 1]);
}

#[tokio::test]
async fn no_query_that_passes_the_parser_is_an_error_of_the_index() {
    let fixture = Fixture::new();
    fixture.received(&["a b c", "x"]).await;
    fixture.indexed().await;
    let signs = [
        "\"",
        "*",
        "AND",
        "OR",
        "NOT",
        "NEAR(",
        ")",
        "^",
        "{",
        "}",
        ":",
        "-",
        "+",
        ",",
        "'",
        ";",
        "%",
        "a",
        "é",
        "👩‍👩‍👧",
        "ि",
    ];
    for one in signs {
        for two in signs {
            for typed in [format!("{one}{two}"), format!("a{one} {two}")] {
                if let Ok(query) = SearchQuery::parse(&typed) {
                    let searched = fixture.store.inbox_search(query, None, coder()).await;
                    assert!(searched.is_ok(), "{typed:?}: {searched:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn two_indexers_at_once_index_each_item_once() {
    let fixture = Fixture::new();
    let bodies: Vec<String> = (0..700).map(|n| format!("word{n} same")).collect();
    fixture
        .received(&bodies.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
    tokio::join!(fixture.indexed(), fixture.indexed(), fixture.indexed());
    let query = SearchQuery::parse("same").unwrap();
    let page = InboxFilter {
        limit: 1000,
        ..coder()
    };
    let found = fixture.store.inbox_search(query, None, page).await.unwrap();
    assert_eq!((found.rows.len(), found.more), (700, false));
    let check = "INSERT INTO inbox_fts (inbox_fts) VALUES ('integrity-check')";
    fixture.raw().execute(check, []).unwrap();
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_found_by_its_sender_and_stops_nothing() {
    let fixture = Fixture::new();
    fixture.received(&["readable"]).await;
    let sealed = NewInboxRow {
        envelope: vec![0xff, 0xfe],
        ..fixture.item("coder", "sealed", at(1, 50))
    };
    fixture
        .store
        .receive(fixture.mesh, vec![sealed])
        .await
        .unwrap();
    fixture.received(&["after"]).await;
    assert_eq!(fixture.indexed().await, 3);
    assert_eq!(fixture.found("alice").await, [3, 2, 1]);
}
