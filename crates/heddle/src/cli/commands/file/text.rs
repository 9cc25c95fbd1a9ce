//! What the file verbs say to people.

use heddle_wire::ipc::{FilePage, FileShareAnswer};

use crate::cli::printable;
use crate::cli::text::table;

pub(super) fn shared(answer: &FileShareAnswer) -> String {
    let (path, size) = (printable(&answer.path), size(answer.size));
    if answer.duplicate {
        format!("already shared {path}, {size} ({})\n", answer.id)
    } else {
        let instead = answer.replaced.as_ref().map_or(
            "",
            |_| " in the place of what you had shared there; --as shares it under another name",
        );
        format!(
            "shared {path}, {size}, safe on disk ({}){instead}\n",
            answer.id
        )
    }
}

pub(super) fn page(page: &FilePage) -> String {
    if page.items.is_empty() {
        return "no file is shared here; share one with `heddle file share FILE`\n".to_owned();
    }
    let head = ["PATH", "SIZE", "OWNER", "WHERE", "ID"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(page.items.iter().map(|item| {
        let place = match item.content.as_str() {
            "elsewhere" => "elsewhere",
            "gone" => "gone",
            _ => "here",
        };
        vec![
            item.path.clone(),
            size(item.size),
            item.peer.clone(),
            place.to_owned(),
            item.id.clone(),
        ]
    }));
    table(&rows)
}

/// For people: three digits are enough.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 3] = ["KB", "MB", "GB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    // Rounded in halves of the last digit; a file beyond 2^53 bytes is not met.
    let mut tenths = bytes.saturating_mul(10) / 1000;
    for unit in UNITS {
        if tenths < 10_000 || unit == "GB" {
            return match tenths {
                ..100 => format!("{}.{} {unit}", tenths / 10, tenths % 10),
                _ => format!("{} {unit}", tenths / 10),
            };
        }
        tenths /= 1000;
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_short() {
        for (bytes, expected) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 KB"),
            (9_999, "9.9 KB"),
            (65_536, "65 KB"),
            (999_999, "999 KB"),
            (1_000_000, "1.0 MB"),
            (104_857_600, "104 MB"),
            (5_000_000_000, "5.0 GB"),
            (5_000_000_000_000, "5000 GB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }
}
