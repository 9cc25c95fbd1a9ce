//! What must agree with a document gets a check.
#![cfg(test)]

use heddle_core::error_code::ErrorCode;

#[test]
fn every_error_code_stands_in_the_document_as_it_is_in_the_code() {
    let document = include_str!("../../../docs/errors/README.md");
    for code in ErrorCode::ALL {
        let row = format!(
            "| `{}` | {} | {} | {} | {} |",
            code.as_str(),
            code.status(),
            code.retry().as_str(),
            code.title(),
            code.next()
        );
        assert!(
            document.contains(&row),
            "docs/errors/README.md lacks: {row}"
        );
    }
    let rows = document
        .lines()
        .filter(|line| line.starts_with("| `"))
        .count();
    assert_eq!(
        rows,
        ErrorCode::ALL.len(),
        "docs/errors/README.md has a code too many"
    );
}

#[test]
fn every_row_of_the_accept_table_stands_in_the_protocol() {
    let document = include_str!("../../../docs/PROTOCOL.md");
    for row in heddle_core::gate::IPC_ACCEPT {
        if let heddle_core::gate::IpcVerdict::Conflict(conflict) = row.verdict {
            assert!(
                document.contains(conflict),
                "docs/PROTOCOL.md lacks {conflict}"
            );
        }
    }
}
