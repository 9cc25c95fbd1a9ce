//! Which model a fingerprint is of, where the row that said so was changed or lost. Only what hashes to the fingerprint is
//! believed, so that whatever is tried here, what is found is proven.

use heddle_core::limits::VECTOR_DIM_MAX;
use heddle_core::vector::{
    HASHED, ModelFingerprint, ModelIdentity, QUANTIZATION, VERSION_UNKNOWN, hashed_identity,
};

/// Providers that Heddle itself knows.
const PROVIDERS: [&str; 4] = [HASHED, "openai", "command", "caller"];
/// Combinations of what other rows say, at the most.
const COMBINED_MAX: usize = 1 << 20;

/// What some row says of a model, as far as anything can be read of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    /// Provider, model and version, as the bytes that they are now.
    pub texts: [Vec<u8>; 3],
    pub dim: Option<usize>,
}

/// The model of this fingerprint: what its own row says with one thing put right, or what the rows of all models and the
/// model's table say together. `own` comes first among `said`; `dims` is what the table itself holds.
pub(crate) fn identity_of(
    print: ModelFingerprint,
    own: Option<&Said>,
    (others, dims): (&[Said], &[usize]),
) -> Option<ModelIdentity> {
    let known = hashed_identity().ok();
    if let Some(known) = known.filter(|known| known.fingerprint() == print) {
        return Some(known);
    }
    let own_dim = own.and_then(|own| own.dim);
    let mut all: Vec<usize> = own_dim.into_iter().chain(dims.iter().copied()).collect();
    all.dedup();
    if let Some(own) = own {
        let found = of_any_length(print, own).or_else(|| with_one_byte(print, own, &all));
        if found.is_some() {
            return found;
        }
    }
    all.extend(others.iter().filter_map(|said| said.dim));
    all.sort_unstable();
    all.dedup();
    combined(print, (own, others), &all)
}

/// The length was changed.
fn of_any_length(print: ModelFingerprint, said: &Said) -> Option<ModelIdentity> {
    let [provider, model, version] = said.texts.each_ref().map(|text| std::str::from_utf8(text));
    let (Ok(provider), Ok(model), Ok(version)) = (provider, model, version) else {
        return None;
    };
    let first = said.dim.into_iter();
    first
        .chain(1..=VECTOR_DIM_MAX)
        .find_map(|dim| is_it(print, (provider, model, version), dim))
}

/// A disk changes a bit, and with it a byte of one of the texts.
fn with_one_byte(print: ModelFingerprint, said: &Said, dims: &[usize]) -> Option<ModelIdentity> {
    for part in 0..said.texts.len() {
        for at in 0..said.texts[part].len() {
            for byte in 0..=u8::MAX {
                let mut texts = said.texts.clone();
                texts[part][at] = byte;
                let [Ok(provider), Ok(model), Ok(version)] =
                    texts.each_ref().map(|text| std::str::from_utf8(text))
                else {
                    continue;
                };
                let mut dims = dims.iter();
                let found = dims.find_map(|dim| is_it(print, (provider, model, version), *dim));
                if found.is_some() {
                    return found;
                }
            }
        }
    }
    None
}

/// Whatever is known of any model, put together.
fn combined(
    print: ModelFingerprint,
    (own, others): (Option<&Said>, &[Said]),
    dims: &[usize],
) -> Option<ModelIdentity> {
    let column = |part: usize, known: &[&str]| {
        let said = own.into_iter().chain(others);
        let said = said.filter_map(|said| String::from_utf8(said.texts[part].clone()).ok());
        let mut texts: Vec<String> = said.chain(known.iter().map(ToString::to_string)).collect();
        texts.sort_unstable();
        texts.dedup();
        texts
    };
    let (providers, models) = (column(0, &PROVIDERS), column(1, &[HASHED]));
    let versions = column(2, &[VERSION_UNKNOWN, "1"]);
    let mut left = COMBINED_MAX;
    for provider in &providers {
        for model in &models {
            for version in &versions {
                left = left.checked_sub(dims.len())?;
                let mut dims = dims.iter();
                let found = dims.find_map(|dim| is_it(print, (provider, model, version), *dim));
                if found.is_some() {
                    return found;
                }
            }
        }
    }
    None
}

fn is_it(
    print: ModelFingerprint,
    (provider, model, version): (&str, &str, &str),
    dim: usize,
) -> Option<ModelIdentity> {
    let identity = ModelIdentity::new(provider, model, version, dim, QUANTIZATION).ok()?;
    (identity.fingerprint() == print).then_some(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(provider: &str, model: &str, version: &str, dim: usize) -> Said {
        Said {
            texts: [provider, model, version].map(|text| text.as_bytes().to_vec()),
            dim: Some(dim),
        }
    }

    #[test]
    fn one_changed_cell_is_put_right_and_nothing_is_believed_that_is_not_proven() {
        let was = ModelIdentity::new("caller", "slow", "7", 16, QUANTIZATION).unwrap();
        let print = was.fingerprint();
        let of = |own: &Said, dims: &[usize]| identity_of(print, Some(own), (&[], dims));
        assert_eq!(of(&said("caller", "slow", "7", 17), &[]), Some(was.clone()));
        assert_eq!(
            of(&said("somebody", "slow", "7", 16), &[]),
            Some(was.clone())
        );
        assert_eq!(of(&said("caller", "slov", "7", 16), &[]), Some(was.clone()));
        assert_eq!(
            of(&said("caller", "slow", "x", 9), &[16]),
            Some(was.clone())
        );
        let mut no_text = said("caller", "slow", "7", 16);
        no_text.texts[1][2] = 0xff;
        assert_eq!(of(&no_text, &[]), Some(was.clone()));
        // A row of another model knows the name, and the table the length.
        let other = [said("caller", "slow", "7", 99)];
        assert_eq!(identity_of(print, None, (&other, &[16])), Some(was));
        assert_eq!(identity_of(print, None, (&other, &[])), None);
        assert_eq!(of(&said("caller", "another", "7", 16), &[16]), None);
    }
}
