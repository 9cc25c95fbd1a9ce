//! A source file as a flat list of tokens, so that comments, doc text and string contents never look like code.
//!
//! Macro bodies are tokens too, which is why the rules match here and not on the syntax tree.

use proc_macro2::{Delimiter, Group, Literal, TokenStream, TokenTree};

#[derive(Debug)]
pub(crate) enum Kind {
    Ident(String),
    Punct(char),
    Literal(Literal),
    Open(char),
    Close(char),
}

#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) line: usize,
}

impl Token {
    pub(crate) fn is_ident(&self, name: &str) -> bool {
        matches!(&self.kind, Kind::Ident(ident) if ident == name)
    }

    pub(crate) fn is_punct(&self, wanted: char) -> bool {
        matches!(self.kind, Kind::Punct(punct) if punct == wanted)
    }

    pub(crate) fn opens(&self, wanted: char) -> bool {
        matches!(self.kind, Kind::Open(open) if open == wanted)
    }

    pub(crate) fn closes(&self, wanted: char) -> bool {
        matches!(self.kind, Kind::Close(close) if close == wanted)
    }
}

pub(crate) fn flatten(stream: TokenStream) -> Vec<Token> {
    let mut out = Vec::new();
    push_stream(stream, &mut out);
    out
}

fn push_stream(stream: TokenStream, out: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        let kind = match tree {
            TokenTree::Ident(ident) => Kind::Ident(ident.to_string()),
            TokenTree::Punct(punct) => Kind::Punct(punct.as_char()),
            TokenTree::Literal(literal) => Kind::Literal(literal),
            TokenTree::Group(group) => {
                if !is_doc(&group) {
                    push_group(&group, out);
                }
                continue;
            }
        };
        out.push(Token { kind, line });
    }
}

fn push_group(group: &Group, out: &mut Vec<Token>) {
    let delimiters = match group.delimiter() {
        Delimiter::Parenthesis => Some(('(', ')')),
        Delimiter::Brace => Some(('{', '}')),
        Delimiter::Bracket => Some(('[', ']')),
        Delimiter::None => None,
    };
    if let Some((open, _)) = delimiters {
        let line = group.span_open().start().line;
        out.push(Token {
            kind: Kind::Open(open),
            line,
        });
    }
    push_stream(group.stream(), out);
    if let Some((_, close)) = delimiters {
        let line = group.span_close().start().line;
        out.push(Token {
            kind: Kind::Close(close),
            line,
        });
    }
}

/// `[doc = "…"]`, which is what the lexer makes of a doc comment.
fn is_doc(group: &Group) -> bool {
    let mut trees = group.stream().into_iter();
    group.delimiter() == Delimiter::Bracket
        && matches!(trees.next(), Some(TokenTree::Ident(ident)) if ident == "doc")
        && matches!(trees.next(), Some(TokenTree::Punct(punct)) if punct.as_char() == '=')
}

/// Where a path was found: the index after it, and whether a `use` list spelled it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PathMatch {
    pub(crate) end: usize,
    pub(crate) in_list: bool,
}

/// Finds `a::b` at `at`, also spelled `a::{x, b}`.
pub(crate) fn path_at(tokens: &[Token], at: usize, segments: &[&str]) -> Option<PathMatch> {
    let (first, rest) = segments.split_first()?;
    if !tokens.get(at)?.is_ident(first) {
        return None;
    }
    if rest.is_empty() {
        let (end, in_list) = (at + 1, false);
        return Some(PathMatch { end, in_list });
    }
    if !separator_at(tokens, at + 1) {
        return None;
    }
    let next = at + 3;
    if !tokens.get(next)?.opens('{') {
        return path_at(tokens, next, rest);
    }
    list_entries(tokens, next)
        .find_map(|entry| path_at(tokens, entry, rest))
        .map(|found| PathMatch {
            in_list: true,
            ..found
        })
}

pub(crate) fn separator_at(tokens: &[Token], at: usize) -> bool {
    let colon = |index: usize| tokens.get(index).is_some_and(|token| token.is_punct(':'));
    colon(at) && colon(at + 1)
}

/// The index at which each entry of the `{…}` list opened at `open` begins.
fn list_entries(tokens: &[Token], open: usize) -> impl Iterator<Item = usize> {
    let mut depth = 0_usize;
    let mut entries = Vec::new();
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match token.kind {
            Kind::Open(_) => depth += 1,
            Kind::Close(_) => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if depth == 1 && (index == open || token.is_punct(',')) {
            entries.push(index + 1);
        }
    }
    entries.into_iter()
}

#[cfg(test)]
mod tests {
    use super::{Kind, Token, flatten, path_at};

    fn tokens(text: &str) -> Vec<Token> {
        flatten(text.parse().unwrap())
    }

    fn finds(text: &str, segments: &[&str]) -> bool {
        let tokens = tokens(text);
        (0..tokens.len()).any(|at| path_at(&tokens, at, segments).is_some())
    }

    #[test]
    fn a_path_is_found_in_every_spelling() {
        for text in [
            "let t = std::env::var(\"X\");",
            "use std::env::var;",
            "use std::env::{args, var};",
            "use std::{env::{args, var}, io};",
            "my_macro! { env :: var }",
        ] {
            assert!(finds(text, &["env", "var"]), "{text}");
        }
    }

    #[test]
    fn a_look_alike_is_not_a_path() {
        for text in [
            "env::vars()",
            "my_env::var()",
            "env.var()",
            "use std::env::{self, args}; use x::{y::{var}};",
            "// env::var",
            "/// env::var\nfn f() {}",
            "let s = \"env::var\";",
        ] {
            assert!(!finds(text, &["env", "var"]), "{text}");
        }
    }

    #[test]
    fn doc_text_is_no_token_and_a_line_is_counted_from_one() {
        let tokens = tokens("/// SELECT\n#[doc = \"SELECT\"]\nfn f() {}");
        assert!(
            !tokens
                .iter()
                .any(|token| matches!(token.kind, Kind::Literal(_)))
        );
        let name = tokens.iter().find(|token| token.is_ident("f")).unwrap();
        assert_eq!(name.line, 3);
    }
}
