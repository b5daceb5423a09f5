//! What a file that is no `safetensors` file really is, for a message that helps.

use super::error::Problem;

/// Describes the contents by their first bytes, with a remedy where there is a known one. Only asked
/// once the header has been found wrong: a valid header length can look like another format's mark.
pub(crate) fn explain(head: &[u8]) -> Option<Problem> {
    if head.is_empty() {
        return Some(
            Problem::new("the file is empty")
                .remedy("Download or copy it again, the last attempt left nothing behind"),
        );
    }
    let (what, remedy) = KNOWN
        .iter()
        .find(|(marks, ..)| marks.iter().any(|mark| begins_with(head, mark)))
        .map(|&(_, what, remedy)| (what, remedy))?;
    let problem = Problem::new(format!("it is not a safetensors file but {what}"));
    Some(if remedy.is_empty() {
        problem
    } else {
        problem.remedy(remedy)
    })
}

type Known = (&'static [&'static [u8]], &'static str, &'static str);

const RESAVE: &str = "Load it with the library that wrote it and save it as safetensors";

const KNOWN: &[Known] = &[
    (
        &[b"version https://git-lfs"],
        "a git-lfs pointer, the placeholder for a file that was not downloaded",
        "Run `git lfs pull` in its repository, or download the file itself",
    ),
    (
        &[b"<!DOCTYPE", b"<!doctype", b"<html", b"<HTML", b"<?xml"],
        "a web page, probably an error or log-in page saved in place of the file",
        "Download the file again and check the address and your access",
    ),
    (
        &[b"\x1f\x8b"],
        "gzip-compressed data",
        "Decompress it first",
    ),
    (
        &[b"\x28\xb5\x2f\xfd"],
        "zstd-compressed data",
        "Decompress it first",
    ),
    (
        &[b"PK\x03\x04", b"PK\x05\x06"],
        "a zip archive, such as torch.save and numpy.savez write",
        RESAVE,
    ),
    (
        &[b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"],
        "a Python pickle, such as old versions of torch.save write",
        RESAVE,
    ),
    (&[b"GGUF"], "a GGUF file, the format of llama.cpp", RESAVE),
    (&[b"\x93NUMPY"], "a NumPy array file (.npy)", RESAVE),
    (&[b"\x89HDF\r\n\x1a\n"], "an HDF5 file", RESAVE),
    (
        &[b"{", b"["],
        "a JSON text",
        "Open the .safetensors file itself, or the index that names its shards",
    ),
];

/// Web pages may begin with blank lines; the other marks never follow blanks, so it does no harm.
fn begins_with(head: &[u8], mark: &[u8]) -> bool {
    head.trim_ascii_start().starts_with(mark)
}
