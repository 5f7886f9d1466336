//! Programs that must be installed.

use std::path::{Path, PathBuf};

use widelane_handshakes::find_program;

use crate::error::ExperimentError;

/// The programs and modules of the web server experiments.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) nginx: PathBuf,
    pub(crate) h2load: PathBuf,
    pub(crate) curl: PathBuf,
    /// Modules of nginx, in the order in which they are loaded.
    pub(crate) modules: Vec<PathBuf>,
}

impl Programs {
    /// Finds all of them, or says which packages are missing.
    pub(crate) fn find() -> Result<Self, ExperimentError> {
        let mut lacking = Vec::new();
        let mut packages = Vec::new();
        let mut program = |name: &str, package: &'static str| {
            let found = find_program(name);
            if found.is_none() {
                lacking.push(name.to_owned());
                packages.push(package);
            }
            found.unwrap_or_default()
        };
        let nginx = program("nginx", "nginx");
        let h2load = program("h2load", "nghttp2-client");
        let curl = program("curl", "curl");
        let mut modules = Vec::new();
        for (file, package) in MODULES {
            let path = Path::new(MODULE_FOLDER).join(file);
            if !path.is_file() {
                lacking.push(file.to_owned());
                if !packages.contains(&package) {
                    packages.push(package);
                }
            }
            modules.push(path);
        }
        if lacking.is_empty() {
            return Ok(Self {
                nginx,
                h2load,
                curl,
                modules,
            });
        }
        let are = if lacking.len() == 1 { "is" } else { "are" };
        Err(ExperimentError::Lacking {
            lacking: format!("{} {are}", lacking.join(", ")),
            packages: packages.join(" "),
        })
    }
}

const MODULE_FOLDER: &str = "/usr/lib/nginx/modules";
const MODULES: [(&str, &str); 3] = [
    ("ndk_http_module.so", "libnginx-mod-http-ndk"),
    ("ngx_http_lua_module.so", "libnginx-mod-http-lua"),
    ("ngx_http_brotli_filter_module.so", "libnginx-mod-http-brotli-filter"),
];
