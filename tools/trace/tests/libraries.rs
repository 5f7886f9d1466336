//! The functions of the table are found in the libraries of this system, and in Go's programs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use widelane_trace::{Image, Located, Table};

const FOLDER: &str = "/usr/lib/x86_64-linux-gnu";

/// `None`, after a line that says so, if this system does not have it.
fn image(name: &str) -> Option<Image> {
    let path = Path::new(FOLDER).join(name);
    let Ok(bytes) = fs::read(&path) else {
        println!("SKIP: it takes {}", path.display());
        return None;
    };
    Some(Image::of(&bytes, &Table::builtin()).expect("it is a library"))
}

fn symbols<'a>(images: &[&'a Image], library: &str) -> BTreeSet<&'a str> {
    let functions = images.iter().copied().flat_map(|image| &image.functions);
    let of_library = functions.filter(|located| located.function.library == library);
    of_library.map(|located| &*located.symbol).collect()
}

fn rows(library: &str) -> BTreeSet<String> {
    let table = Table::builtin();
    let rows = table.functions().iter();
    let rows = rows.filter(|row| row.library == library);
    rows.map(|row| row.symbol.clone()).collect()
}

fn named<'a>(image: &'a Image, symbol: &str) -> &'a Located {
    let mut functions = image.functions.iter();
    let found = functions.find(|located| located.symbol == symbol);
    found.unwrap_or_else(|| panic!("{symbol} is not found"))
}

#[test]
fn every_row_of_openssl_is_found_in_openssl_3_and_none_of_boringssl() {
    let (Some(ssl), Some(crypto)) = (image("libssl.so.3"), image("libcrypto.so.3")) else {
        return;
    };
    let found = symbols(&[&ssl, &crypto], "openssl");
    let expected = rows("openssl");
    assert_eq!(found, expected.iter().map(String::as_str).collect());
    for image in [&ssl, &crypto] {
        assert!(image.functions.iter().all(|one| one.function.library == "openssl"));
        assert!(!image.go && image.blind.is_none());
    }
}

#[test]
fn rows_of_gnutls_and_nss_are_found_in_debian_s_libraries() {
    if let (Some(gnutls), Some(hogweed)) = (image("libgnutls.so.30"), image("libhogweed.so.6")) {
        let found = symbols(&[&gnutls, &hogweed], "gnutls");
        let missing: Vec<_> = rows("gnutls")
            .into_iter()
            .filter(|row| !row.contains('*') && !found.contains(&**row))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert!(found.contains("nettle_rsa_pss_sha256_verify_digest"));
    }
    let nss = ["libssl3.so", "libnss3.so", "libnspr4.so"].map(image);
    if let [Some(ssl), Some(nss), Some(nspr)] = nss {
        let found = symbols(&[&ssl, &nss, &nspr], "nss");
        // These came with ML-KEM, in 2024.
        let later = ["PK11_Encapsulate", "PK11_Decapsulate"];
        let missing: Vec<_> = rows("nss")
            .into_iter()
            .filter(|row| !later.contains(&&**row) && !found.contains(&**row))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}

/// `nm` knows where the functions are, `objdump` where their returns are.
#[test]
fn places_are_those_that_binutils_report() {
    let Some(ssl) = image("libssl.so.3") else {
        return;
    };
    let library = format!("{FOLDER}/libssl.so.3");
    let disassemble = |symbol: &str| {
        let output = Command::new("objdump")
            .args(["-d", "--no-show-raw-insn"])
            .arg(format!("--disassemble={symbol}"))
            .arg(&library)
            .output();
        output
            .ok()
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let located = named(&ssl, "SSL_read");
    let Some(text) = disassemble("SSL_read").filter(|text| text.contains("<SSL_read")) else {
        println!("SKIP: it takes objdump");
        return;
    };
    let instructions = text.lines().filter_map(|line| {
        let (address, instruction) = line.trim().split_once(":\t")?;
        let address = u64::from_str_radix(address, 16).ok()?;
        Some((address, instruction.trim()))
    });
    let instructions: Vec<_> = instructions.collect();
    // In Debian's library, code is at the offset that is its address.
    assert_eq!(located.entry, instructions[0].0);
    let returns = instructions.iter().filter(|(_, text)| *text == "ret");
    let returns: Vec<_> = returns.map(|&(address, _)| address).collect();
    assert!(!returns.is_empty());
    match &located.leaves {
        Ok(found) => {
            assert!(returns.iter().all(|one| found.contains(one)), "{found:x?} {returns:x?}");
        }
        Err(why) => panic!("{why}"),
    }
}

/// A program that serves TLS, compiled so; `None` if that takes what is not here. All tests share what Go
/// has compiled of its own library.
fn go_program(folder: &Path, flags: &[&str]) -> Option<PathBuf> {
    let program = folder.join("program");
    fs::write(folder.join("main.go"), GO).unwrap();
    fs::write(folder.join("go.mod"), "module example\n\ngo 1.20\n").unwrap();
    let output = Command::new("go")
        .arg("build")
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(".")
        .current_dir(folder)
        .env("GOFLAGS", "-mod=mod")
        .env("GOTOOLCHAIN", "local")
        .env("GOPROXY", "off")
        .env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go"))
        .output();
    match output {
        Ok(output) if output.status.success() => Some(program),
        Ok(output) => {
            println!(
                "SKIP: go builds no program: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            None
        }
        Err(_) => {
            println!("SKIP: it takes go");
            None
        }
    }
}

#[test]
fn go_s_functions_are_found_with_symbols_and_without() {
    let folder = tempfile::tempdir().unwrap();
    // With C linked in, Go's code does not begin at the beginning of all code.
    let builds: [&[&str]; 3] = [&[], &["-ldflags=-s -w"], &["-ldflags=-s -w -linkmode=external"]];
    let mut first = None;
    for (number, flags) in builds.into_iter().enumerate() {
        let own = folder.path().join(number.to_string());
        fs::create_dir(&own).unwrap();
        let Some(program) = go_program(&own, flags) else {
            if number == 0 {
                return;
            }
            continue;
        };
        let bytes = fs::read(&program).unwrap();
        let image = Image::of(&bytes, &Table::builtin()).unwrap();
        assert!(image.go && image.blind.is_none(), "{flags:?}: {:?}", image.blind);
        for located in &image.functions {
            assert!(located.goroutine && located.function.library == "go", "{located:?}");
            let Ok(returns) = &located.leaves else {
                panic!("{flags:?}: {located:?}");
            };
            // Each place is code: the first byte of a return instruction.
            for &at in returns {
                assert_eq!(bytes[usize::try_from(at).unwrap()], 0xc3, "{flags:?} {located:?}");
            }
        }
        let found: Vec<_> = image.functions.iter().map(|one| one.symbol.clone()).collect();
        for symbol in [
            "crypto/tls.(*Conn).serverHandshake",
            "crypto/tls.(*Conn).Read",
            "crypto/ecdsa.SignASN1",
            "crypto/ecdh.(*PrivateKey).ECDH",
        ] {
            assert!(found.iter().any(|one| one == symbol), "{flags:?}: {symbol}: {found:?}");
        }
        // Stripped or not, the same functions at the same distances.
        let start = image.functions[0].entry;
        let shape: Vec<_> = (image.functions.iter())
            .map(|one| (one.symbol.clone(), one.entry - start, one.leaves.clone()))
            .map(|(symbol, distance, leaves)| match leaves {
                Ok(places) => (symbol, distance, places.len()),
                Err(why) => panic!("{why}"),
            })
            .collect();
        if number < 2 {
            let first = first.get_or_insert_with(|| shape.clone());
            assert_eq!(*first, shape);
        }
    }
}

const GO: &str = r#"
package main

import (
	"crypto/tls"
	"os"
)

func main() {
	pair, err := tls.LoadX509KeyPair(os.Args[1], os.Args[2])
	if err != nil {
		panic(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		panic(err)
	}
	for {
		peer, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer peer.Close()
			peer.Read(make([]byte, 1))
			peer.Write([]byte("x"))
		}()
	}
}
"#;
