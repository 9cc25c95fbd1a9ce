//! Rule `function-lines`: a function can be read without scrolling. Test code is not measured.

use syn::visit::{self, Visit};
use syn::{
    Attribute, Block, ImplItemFn, ItemFn, ItemImpl, ItemTrait, Signature, TraitItemFn, Type,
};

use super::source::Source;
use super::test_code::is_test_attribute;
use crate::finding::Finding;

pub(crate) const RULE: &str = "function-lines";
const FUNCTION_LINES_MAX: usize = 70;

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let mut measure = Measure {
        source,
        owner: None,
        findings: Vec::new(),
    };
    measure.visit_file(&source.file);
    measure.findings
}

struct Measure<'s> {
    source: &'s Source,
    /// The type or trait around a method; exceptions name `Owner::method`.
    owner: Option<String>,
    findings: Vec<Finding>,
}

impl Measure<'_> {
    fn measure(&mut self, attributes: &[Attribute], signature: &Signature, body: &Block) {
        let first = signature.fn_token.span.start().line;
        let last = body.brace_token.span.close().end().line;
        let line_count = last - first + 1;
        let is_test = self.source.is_test_line(first) || attributes.iter().any(is_test_attribute);
        if is_test || line_count <= FUNCTION_LINES_MAX {
            return;
        }
        let name = match &self.owner {
            Some(owner) => format!("{owner}::{}", signature.ident),
            None => signature.ident.to_string(),
        };
        let advice = format!(
            "`{name}` has {line_count} lines, at most {FUNCTION_LINES_MAX}: split it, or list it in xtask/exceptions.toml with a reason"
        );
        let finding = Finding::new(&self.source.path, first, RULE, advice);
        self.findings.push(Finding {
            function: Some(name),
            ..finding
        });
    }

    fn within(&mut self, owner: Option<String>, visit: impl FnOnce(&mut Self)) {
        let outside = std::mem::replace(&mut self.owner, owner);
        visit(self);
        self.owner = outside;
    }
}

impl Visit<'_> for Measure<'_> {
    fn visit_item_impl(&mut self, item: &ItemImpl) {
        let owner = match &*item.self_ty {
            Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        self.within(owner, |inner| visit::visit_item_impl(inner, item));
    }

    fn visit_item_trait(&mut self, item: &ItemTrait) {
        let owner = Some(item.ident.to_string());
        self.within(owner, |inner| visit::visit_item_trait(inner, item));
    }

    fn visit_item_fn(&mut self, item: &ItemFn) {
        // A function inside a method has no owner of its own.
        self.within(None, |inner| {
            inner.measure(&item.attrs, &item.sig, &item.block);
            visit::visit_item_fn(inner, item);
        });
    }

    fn visit_impl_item_fn(&mut self, item: &ImplItemFn) {
        self.measure(&item.attrs, &item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &TraitItemFn) {
        if let Some(body) = &item.default {
            self.measure(&item.attrs, &item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::{Source, check};
    use crate::tidy::lines_found;

    /// `lines` lines from the signature to the closing brace.
    fn function(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    #[test]
    fn the_first_line_past_the_bound_is_caught() {
        assert_eq!(lines_found(check, "a.rs", &function(71)), [1]);
        let documented = format!("/// Doc.\n#[inline]\npub async {}", function(71));
        assert_eq!(lines_found(check, "a.rs", &documented), [3]);
    }

    #[test]
    fn a_method_is_named_with_its_owner() {
        for (around, name) in [
            ("impl Writer<'_>", "Writer::f"),
            ("impl Drop for log::Writer", "Writer::f"),
            ("trait Disk", "Disk::f"),
            ("mod inner", "f"),
        ] {
            let text = format!("{around} {{\n{}}}\n", function(71));
            let source = Source::parse("a.rs", text).unwrap();
            let names: Vec<_> = check(&source).into_iter().map(|f| f.function).collect();
            assert_eq!(names, [Some(name.to_owned())], "{around}");
        }
    }

    #[test]
    fn the_bound_itself_passes_and_so_do_tests() {
        let long = function(200);
        for (path, text) in [
            ("a.rs", function(70)),
            ("a.rs", format!("#[tokio::test]\nasync {long}")),
            ("a.rs", format!("#[cfg(test)]\nmod tests {{\n{long}}}\n")),
            ("crates/core/tests/a.rs", long.clone()),
        ] {
            assert_eq!(lines_found(check, path, &text), [], "{path}");
        }
    }
}
