//! The page that plumb's server has: 10,000 bytes of HTML and 12 images of 30,000 bytes together.
//!
//! The same bytes in every process, so that a client knows what has to come. Image bytes are random, as
//! compressed pictures are. Left out: real pictures.

use std::fmt::Write as _;
use std::sync::LazyLock;

use bytes::Bytes;
use plumb_base::seed::Seed;
use rand::Rng as _;

/// Bytes of the page.
const PAGE_BYTES: usize = 10_000;
/// Bytes of each image: from a rule between paragraphs to a picture.
const IMAGE_BYTES: [usize; 12] =
    [512, 800, 1_100, 1_400, 1_700, 2_000, 2_300, 2_700, 3_100, 3_900, 4_700, 5_788];
/// The words between the images.
const FILLER: &str = "What does it cost one program to talk to another? ";

/// One object of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageObject {
    /// Its path, which begins with a slash.
    pub path: String,
    /// Its media type.
    pub media_type: &'static str,
    /// Its bytes.
    pub body: Bytes,
}

/// A page with its images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebPage {
    /// The page itself first.
    pub objects: Vec<PageObject>,
}

/// The page that plumb's server has.
pub static STANDARD: LazyLock<WebPage> = LazyLock::new(WebPage::standard);

impl WebPage {
    fn standard() -> Self {
        let mut random = Seed(0).stream("http page");
        let images = IMAGE_BYTES.iter().enumerate().map(|(index, bytes)| {
            let mut body = vec![0; *bytes];
            random.fill_bytes(&mut body);
            let path = format!("/image/{:02}.png", index + 1);
            PageObject { path, media_type: "image/png", body: Bytes::from(body) }
        });
        let images: Vec<PageObject> = images.collect();
        let mut objects = vec![PageObject {
            path: "/".to_owned(),
            media_type: "text/html; charset=utf-8",
            body: Bytes::from(html(&images)),
        }];
        objects.extend(images);
        Self { objects }
    }

    /// The object of a path.
    pub fn object(&self, path: &str) -> Option<&PageObject> {
        self.objects.iter().find(|object| object.path == path)
    }

    /// Bytes of all bodies.
    pub fn bytes(&self) -> usize {
        self.objects.iter().map(|object| object.body.len()).sum()
    }
}

/// Exactly [`PAGE_BYTES`] of HTML that names the images.
fn html(images: &[PageObject]) -> String {
    const END: &str = "</p></body></html>\n";
    let mut text =
        "<!doctype html><html lang=\"en\"><head><title>plumb</title></head><body>".to_owned();
    let room = PAGE_BYTES - END.len();
    for (index, image) in images.iter().enumerate() {
        // Spread over the page, so that a reader finds them while it comes in.
        let until = room * index / images.len();
        while text.len() + FILLER.len() < until {
            text.push_str(FILLER);
        }
        write!(text, "<p><img src=\"{}\" alt=\"\"></p>", image.path).expect("a string grows");
    }
    text.push_str("<p>");
    let fill: String = FILLER.chars().cycle().take(room - text.len()).collect();
    text.push_str(&fill);
    text.push_str(END);
    text
}

#[cfg(test)]
mod tests {
    use super::super::{OBJECTS_MAX, links};
    use super::*;

    #[test]
    fn the_page_has_twelve_images_and_forty_thousand_bytes() {
        assert_eq!(STANDARD.objects.len(), OBJECTS_MAX);
        assert_eq!(STANDARD.objects[0].body.len(), PAGE_BYTES);
        assert_eq!(STANDARD.bytes(), 40_000);
    }

    #[test]
    fn the_page_names_all_of_its_images() {
        let found = links::images(&STANDARD.objects[0].body, "/", 100);
        let paths: Vec<&str> = STANDARD.objects[1..].iter().map(|o| o.path.as_str()).collect();
        assert_eq!(found, paths);
    }

    #[test]
    fn the_page_is_the_same_in_every_process() {
        // Two hosts with the same plumb must agree on every byte.
        let all: Vec<u8> = STANDARD.objects.iter().flat_map(|o| o.body.to_vec()).collect();
        let fingerprint = plumb_remote::secure::Fingerprint::of(&all).to_string();
        assert_eq!(fingerprint, plumb_remote::secure::Fingerprint::of(&all).to_string());
        assert_eq!(WebPage::standard(), *STANDARD);
    }
}
