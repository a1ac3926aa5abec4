//! Connects to an MCP server with the client of the MCP SDK for Rust, and calls its tools: as ../python/mcp_client.py.

use std::env::{args, var};
use std::io::stdin;

use anyhow::{Context, Result};
use rmcp::model::CallToolRequestParams;
use rmcp::transport::auth::{AuthClient, AuthorizationCallback, AuthorizationRequest, ClientCredentialsConfig, OAuthState};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{RoleClient, ServiceExt, service::RunningService};
use serde_json::{Value, from_str, json};

/// Prints where a person has to sign in, and reads the address that the person returns to.
fn visit(address: &str) -> Result<AuthorizationCallback> {
    println!("{address}");
    let mut line = String::new();
    stdin().read_line(&mut line)?;
    Ok(AuthorizationCallback::from_redirect_url(line.trim())?)
}

async fn sign_in(mode: &str, resource: &str) -> Result<OAuthState> {
    let mut state = OAuthState::new(resource, None).await?;
    if mode == "secret" {
        let config = ClientCredentialsConfig::ClientSecret {
            client_id: var("CLIENT_ID")?,
            client_secret: var("CLIENT_SECRET")?,
            scopes: vec![],
            resource: Some(resource.to_string()),
        };
        state.authenticate_client_credentials(config).await?;
        return Ok(state);
    }
    let mut request = AuthorizationRequest::new(var("CALLBACK")?)
        .with_client_name("Notes client")
        .with_initial_scope_selection();
    if mode == "document" {
        request = request.with_client_metadata_url(var("CLIENT_METADATA_URL")?);
    }
    state.start_authorization(request).await?;
    let callback = visit(&state.get_authorization_url().await?)?;
    state
        .handle_callback_with_issuer(&callback.code, &callback.csrf_token, callback.issuer.as_deref())
        .await?;
    Ok(state)
}

async fn call(service: &RunningService<RoleClient, ()>, tool: &'static str, arguments: Value) -> Result<Value> {
    let arguments = arguments.as_object().cloned().context("arguments")?;
    let result = service.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments)).await?;
    let text = result.content.first().and_then(|content| content.as_text()).context("no text")?;
    Ok(from_str(&text.text)?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mode = args().nth(1).context("mode")?;
    let resource = var("RESOURCE")?;
    let manager = sign_in(&mode, &resource).await?.into_authorization_manager().context("not signed in")?;
    let client = AuthClient::new(reqwest::Client::new(), manager);
    let config = StreamableHttpClientTransportConfig::with_uri(resource);
    let service = ().serve(StreamableHttpClientTransport::with_client(client.clone(), config)).await?;
    let known = call(&service, "whoami", json!({})).await?;
    let note = json!({ "text": "Milk" });
    let added = match call(&service, "add_note", note.clone()).await {
        Ok(added) => added,
        // The scope that the challenge of the tool names.
        Err(_) => {
            let manager = client.auth_manager.lock().await;
            let callback = visit(&manager.request_scope_upgrade("notes:write").await?)?;
            manager
                .exchange_code_for_token_with_issuer(&callback.code, &callback.csrf_token, callback.issuer.as_deref())
                .await?;
            drop(manager);
            call(&service, "add_note", note).await?
        }
    };
    println!("{}", json!([known, added]));
    Ok(())
}
