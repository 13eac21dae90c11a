//! Which images a page names: a scan for `<img … src="…">`, of the same server only.
//!
//! Not a parser of HTML: what scripts and style sheets would load is not found. Left out: other
//! servers' images, which another connection would have to fetch.

/// Longest path that is taken.
const PATH_BYTES_MAX: usize = 1_024;

/// Paths of the images that the page at `base` names, each once, at most so many.
pub fn images(html: &[u8], base: &str, most: usize) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut rest = html;
    while found.len() < most {
        let Some(at) = position(rest, b"<img") else { break };
        rest = &rest[at + 4..];
        let end = rest.iter().position(|byte| *byte == b'>').unwrap_or(rest.len());
        let path = source(&rest[..end]).and_then(|source| resolve(source, base));
        if let Some(path) = path.filter(|path| !found.contains(path)) {
            found.push(path);
        }
        rest = &rest[end..];
    }
    found
}

fn position(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|window| window.eq_ignore_ascii_case(word))
}

/// The value of `src` in a tag.
fn source(tag: &[u8]) -> Option<&str> {
    let mut from = 0;
    loop {
        let at = from + position(&tag[from..], b"src")?;
        let before = at.checked_sub(1).map(|before| tag[before]);
        let value = tag[at + 3..].trim_ascii_start();
        match value.split_first() {
            Some((b'=', value)) if before.is_some_and(|b| b.is_ascii_whitespace()) => {
                let value = value.trim_ascii_start();
                let (quote, value) = match value.split_first() {
                    Some((quote @ (b'"' | b'\''), value)) => (Some(*quote), value),
                    _ => (None, value),
                };
                let is_end = |b: &u8| quote.map_or(b.is_ascii_whitespace(), |quote| *b == quote);
                let end = value.iter().position(is_end).unwrap_or(value.len());
                return std::str::from_utf8(&value[..end]).ok();
            }
            _ => from = at + 3,
        }
    }
}

/// The path on the same server, where it is one.
fn resolve(source: &str, base: &str) -> Option<String> {
    let source = source.split('#').next().unwrap_or_default().trim();
    let is_plain = source.bytes().all(|byte| byte.is_ascii_graphic());
    if source.is_empty() || !is_plain || source.len() > PATH_BYTES_MAX || source.starts_with("//") {
        return None;
    }
    // A colon before the first slash is a scheme: another server, or data in the page itself.
    let first = source.split('/').next().unwrap_or_default();
    if first.contains(':') {
        return None;
    }
    if source.starts_with('/') {
        return Some(source.to_owned());
    }
    let base = base.split('?').next().unwrap_or("/");
    let directory = base.rfind('/').map_or("/", |at| &base[..=at]);
    Some(format!("{directory}{source}"))
}

#[cfg(test)]
mod tests {
    use plumb_base::seed::Seed;
    use rand::RngExt as _;

    use super::*;

    #[test]
    fn images_of_the_same_server_are_found_once_each() {
        let html = br#"<IMG alt=x SRC="/a.png"><img data-src="no.png" src='b.png?x=1#y'><img src=c.png>
            <img src="https://elsewhere/d.png"><img src="//elsewhere/e.png"><img src="data:image/png,x">
            <img src="/a.png"><img><img src=><a src="/f.png"><img src = "/g.png""#;
        let found = images(html, "/dir/page.html?q=/z/", 100);
        assert_eq!(found, ["/a.png", "/dir/b.png?x=1", "/dir/c.png", "/g.png"]);
        assert_eq!(images(html, "/", 2), ["/a.png", "/b.png?x=1"]);
    }

    #[test]
    fn a_path_that_would_break_a_request_is_passed_over() {
        let html = b"<img src='/a b'><img src='/a\r\nHost: x'><img src='/\xff'><img src='/ok'>";
        assert_eq!(images(html, "/", 100), ["/ok"]);
    }

    #[test]
    fn no_bytes_make_the_scan_panic() {
        let seed = Seed(0x6c69_6e6b);
        println!("seed {seed:?}");
        let mut random = seed.stream("links");
        let pieces: [&[u8]; 10] =
            [b"<img", b" src", b"=", b"\"", b"'", b">", b"/x", b" ", b"\xc3", b"srcsrc"];
        for _ in 0..50_000 {
            let count = random.random_range(0..20);
            let html: Vec<u8> = (0..count)
                .flat_map(|_| pieces[random.random_range(0..pieces.len())].to_vec())
                .collect();
            for path in images(&html, "/", 5) {
                assert!(path.starts_with('/'), "{path}");
            }
        }
    }
}
