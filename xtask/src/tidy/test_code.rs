//! Finds test code by its attributes: `#[cfg(test)]` modules in place, those in a file of their own, whole files.

use std::ops::RangeInclusive;

use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, Meta, Token};

/// A module in a file of its own: `stem.rs`, or anything under `stem/`; with `#[path]` exactly one file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChildFile {
    Stem(String),
    Exact(String),
}

impl ChildFile {
    pub(crate) fn covers(&self, path: &str) -> bool {
        match self {
            Self::Exact(exact) => path == exact,
            Self::Stem(stem) => path
                .strip_prefix(stem.as_str())
                .is_some_and(|rest| rest == ".rs" || rest.starts_with('/')),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct TestCode {
    pub(crate) whole_file: bool,
    pub(crate) modules: Vec<RangeInclusive<usize>>,
    pub(crate) children: Vec<ChildFile>,
}

pub(crate) fn find(path: &str, file: &syn::File) -> TestCode {
    let mut finder = Finder {
        folder: parent(path),
        modules_folder: modules_folder(path),
        found: TestCode {
            whole_file: file.attrs.iter().any(is_cfg_test),
            ..TestCode::default()
        },
    };
    finder.visit_file(file);
    finder.found
}

/// `#[test]`, `#[tokio::test]` and their kin.
pub(crate) fn is_test_attribute(attribute: &Attribute) -> bool {
    attribute
        .path()
        .segments
        .last()
        .is_some_and(|last| last.ident == "test")
}

/// `cfg(test)` or `cfg(all(test, …))`: compiled only for tests. `cfg(any(test, …))` is product code as well.
fn is_cfg_test(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute
            .parse_args::<Meta>()
            .is_ok_and(|condition| needs_test(&condition))
}

fn needs_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("all") => list
            .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
            .is_ok_and(|all| all.iter().any(needs_test)),
        _ => false,
    }
}

struct Finder {
    /// Where a `#[path]` of this file counts from.
    folder: String,
    /// Where `mod name;` is looked for; grows with every inline module around it.
    modules_folder: String,
    found: TestCode,
}

impl Visit<'_> for Finder {
    fn visit_item_mod(&mut self, module: &ItemMod) {
        match (&module.content, module.attrs.iter().any(is_cfg_test)) {
            (Some(_), true) => self.found.modules.push(lines(module)),
            (None, true) => self.found.children.push(self.child(module)),
            (Some(_), false) => {
                let outside = self.modules_folder.clone();
                self.modules_folder = join(&outside, &module.ident.to_string());
                visit::visit_item_mod(self, module);
                self.modules_folder = outside;
            }
            (None, false) => {}
        }
    }
}

impl Finder {
    fn child(&self, module: &ItemMod) -> ChildFile {
        match module.attrs.iter().find_map(path_attribute) {
            Some(path) => ChildFile::Exact(join(&self.folder, &path)),
            None => ChildFile::Stem(join(&self.modules_folder, &module.ident.to_string())),
        }
    }
}

fn path_attribute(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    let syn::Expr::Lit(value) = &pair.value else {
        return None;
    };
    match &value.lit {
        syn::Lit::Str(text) if pair.path.is_ident("path") => Some(text.value()),
        _ => None,
    }
}

/// From the first attribute to the closing brace.
fn lines(module: &ItemMod) -> RangeInclusive<usize> {
    let first = module
        .attrs
        .first()
        .map_or_else(|| module.span(), Spanned::span);
    let last = module
        .content
        .as_ref()
        .map_or(first, |(brace, _)| brace.span.close());
    first.start().line..=last.end().line
}

fn parent(path: &str) -> String {
    path.rsplit_once('/')
        .map_or(String::new(), |(folder, _)| folder.to_owned())
}

fn modules_folder(path: &str) -> String {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    match stem.rsplit('/').next() {
        Some("mod" | "lib" | "main") => parent(path),
        _ => stem.to_owned(),
    }
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() {
        name.to_owned()
    } else {
        format!("{folder}/{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::{ChildFile, TestCode, find};

    fn found(path: &str, text: &str) -> TestCode {
        find(path, &syn::parse_file(text).unwrap())
    }

    #[test]
    fn only_a_module_that_needs_test_is_test_code() {
        for (attribute, expected) in [
            ("#[cfg(test)]", true),
            ("#[cfg(all(test, unix))]", true),
            ("#[cfg(any(test, unix))]", false),
            ("#[cfg(not(test))]", false),
            ("#[cfg(feature = \"test\")]", false),
            ("", false),
        ] {
            let code = found("a.rs", &format!("{attribute}\nmod m {{}}"));
            assert_eq!(!code.modules.is_empty(), expected, "{attribute}");
        }
        assert!(found("a.rs", "#![cfg(test)]\nfn f() {}").whole_file);
    }

    #[test]
    fn a_module_ends_with_its_brace() {
        let code = found(
            "a.rs",
            "fn f() {}\n/// Why.\n#[cfg(test)]\nmod t {\n}\nfn g() {}",
        );
        assert_eq!(code.modules, [2..=5]);
    }

    #[test]
    fn a_test_module_in_its_own_file_is_followed() {
        for (path, text, covered) in [
            ("x/src/a.rs", "#[cfg(test)] mod tests;", "x/src/a/tests.rs"),
            (
                "x/src/a.rs",
                "#[cfg(test)] mod tests;",
                "x/src/a/tests/deep.rs",
            ),
            ("x/src/lib.rs", "#[cfg(test)] mod tests;", "x/src/tests.rs"),
            (
                "x/src/a/mod.rs",
                "mod b { #[cfg(test)] mod t; }",
                "x/src/a/b/t.rs",
            ),
            (
                "x/src/a.rs",
                "#[cfg(test)] #[path = \"a_t.rs\"] mod t;",
                "x/src/a_t.rs",
            ),
        ] {
            let children = found(path, text).children;
            assert!(
                children.iter().any(|child| child.covers(covered)),
                "{path}: {text}"
            );
        }
        assert_eq!(found("x/src/a.rs", "mod tests;").children, []);
        assert!(!ChildFile::Stem("x/t".into()).covers("x/tt.rs"));
    }
}
