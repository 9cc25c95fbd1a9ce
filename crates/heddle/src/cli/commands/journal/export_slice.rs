//! `heddle journal export-slice`: this store's own records for another one, without users, pids and absolute paths.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use heddle_journal::federation::{ExportAsk, Exported, Renew};

use super::mesh_slices::{self, Posted};
use super::store;
use crate::cli::text::printable;
use crate::cli::{CliError, Context, exit, ui};

#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The file to write; one that is there stays as it is. `-` is standard output
    #[arg(long, value_name = "FILE", required_unless_present = "to_mesh")]
    out: Option<PathBuf>,
    /// Share it with the mesh instead, under the repository's name [default: that of its folder]: what was not
    /// shared yet, for `import-slice --from-mesh` of the others
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with = "out")]
    to_mesh: Option<String>,
    /// Records after this seq; the end of the range that was imported last
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    since: u64,
    /// At most this many records; the answer says whether there are more
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Only this item type; may be given several times
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// After a restore from a copy: seqs are given a second time, and others must be able to tell
    #[arg(long, conflicts_with = "new_origin")]
    new_epoch: bool,
    /// This store is a copy that lives on beside the first one
    #[arg(long)]
    new_origin: bool,
}

pub fn run(context: &Context, args: Args) -> Result<(), CliError> {
    let journal = store::open(context, None)?;
    let ask = ExportAsk {
        since: args.since,
        limit: usize::try_from(args.limit).unwrap_or(usize::MAX),
        types: args.types,
        renew: match (args.new_epoch, args.new_origin) {
            (true, _) => Renew::Epoch,
            (_, true) => Renew::Origin,
            _ => Renew::No,
        },
    };
    if let Some(name) = &args.to_mesh {
        let posted = mesh_slices::post(context, &journal, name, ask)?;
        return context.print_done(&posted, posted_text);
    }
    let out = args.out.unwrap_or_else(|| PathBuf::from("-"));
    let is_stream = out == Path::new("-");
    if !is_stream && out.exists() {
        let sentence = format!("{} is there already, and stays as it is", out.display());
        return Err(CliError::new(exit::CONFLICT, sentence).next("Name another file with --out."));
    }
    let told = journal.export_slice(&ask).map_err(store::told)?;
    let failed = |error: std::io::Error| {
        CliError::new(exit::FAILED, format!("{}: {error}", out.display()))
            .next("Check the folder and the space on the disk; nothing else has changed.")
    };
    if is_stream {
        // The slice is the output: a word beside it would break it.
        return ui::out().write_all(&told.slice).map_err(failed);
    }
    put(&out, &told.slice).map_err(failed)?;
    context.print_done(&told, |told| text(told, &out))
}

fn posted_text(posted: &Posted) -> String {
    let mut text = match posted.shared.len() {
        0 => format!("nothing new for the mesh after seq {}\n", posted.last_seq),
        slices => format!(
            "{} records up to seq {} of {} shared as {slices} slices of {}\n",
            posted.records, posted.last_seq, posted.origin_id, posted.name
        ),
    };
    if posted.withdrawn > 0 {
        text.push_str(&format!(
            "{} slices of before held what is erased now, and are shared no longer; their bytes stay in free pages of data.db until `heddle down` and `heddle doctor --compact`, in every home that had them\n",
            posted.withdrawn
        ));
    }
    for withheld in &posted.withheld {
        text.push_str(&format!("withheld: {withheld}\n"));
    }
    text.push_str("next, in the other repository: heddle journal import-slice --from-mesh\n");
    printable(&text)
}

/// For the owner alone, and whole on the disk before the answer.
fn put(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn text(told: &Exported, out: &Path) -> String {
    let [first, last] = told.seq_range;
    let mut text = format!(
        "{} records of seq {first} to {last} of {} in {}; {} private parts were taken out\n",
        told.records,
        told.origin_id,
        out.display(),
        told.stripped
    );
    for withheld in &told.withheld {
        text.push_str(&format!("withheld: {withheld}\n"));
    }
    if told.more {
        text.push_str(&format!(
            "there is more: heddle journal export-slice --since {last} --out ANOTHER\n"
        ));
    }
    text.push_str("next, in the other repository: heddle journal import-slice FILE\n");
    printable(&text)
}
