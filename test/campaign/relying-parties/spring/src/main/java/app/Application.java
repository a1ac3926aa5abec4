package app;

import com.nimbusds.jose.JOSEException;
import com.nimbusds.jose.crypto.Ed25519Verifier;
import com.nimbusds.jose.jwk.JWKMatcher;
import com.nimbusds.jose.jwk.JWKSelector;
import com.nimbusds.jose.jwk.source.JWKSourceBuilder;
import com.nimbusds.jose.proc.BadJOSEException;
import com.nimbusds.jose.proc.BadJWSException;
import com.nimbusds.jose.proc.SecurityContext;
import com.nimbusds.jwt.JWTClaimsSet;
import com.nimbusds.jwt.SignedJWT;
import com.nimbusds.jwt.proc.DefaultJWTProcessor;
import java.net.MalformedURLException;
import java.net.URI;
import java.net.URL;
import java.text.ParseException;
import java.util.Map;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.security.config.annotation.web.builders.HttpSecurity;
import org.springframework.security.core.annotation.AuthenticationPrincipal;
import org.springframework.security.oauth2.client.oidc.authentication.OidcIdTokenDecoderFactory;
import org.springframework.security.oauth2.client.oidc.authentication.OidcIdTokenValidator;
import org.springframework.security.oauth2.client.registration.ClientRegistration;
import org.springframework.security.oauth2.core.DelegatingOAuth2TokenValidator;
import org.springframework.security.oauth2.core.converter.ClaimTypeConverter;
import org.springframework.security.oauth2.core.oidc.user.OidcUser;
import org.springframework.security.oauth2.jose.jws.SignatureAlgorithm;
import org.springframework.security.oauth2.jwt.JwtDecoder;
import org.springframework.security.oauth2.jwt.JwtDecoderFactory;
import org.springframework.security.oauth2.jwt.JwtTimestampValidator;
import org.springframework.security.oauth2.jwt.NimbusJwtDecoder;
import org.springframework.security.web.SecurityFilterChain;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/**
 * A relying party: Spring Boot with the OAuth2 client of Spring Security, used as documented.
 *
 * <p>Reads its registrations from SPRING_APPLICATION_JSON and shows the identity that it received.
 */
@SpringBootApplication
@RestController
public class Application {
  /** A registration with this name keeps the algorithm that Spring Security expects by default. */
  private static final String WITHOUT_SETTING = "plain";

  /** Registrations with this prefix use the decoder for EdDSA. */
  private static final String EDDSA = "eddsa";

  public static void main(String[] args) {
    SpringApplication.run(Application.class, args);
  }

  @Bean
  JwtDecoderFactory<ClientRegistration> idTokenDecoderFactory() {
    var standard = new OidcIdTokenDecoderFactory();
    standard.setJwsAlgorithmResolver(
        registration ->
            registration.getRegistrationId().equals(WITHOUT_SETTING)
                ? SignatureAlgorithm.RS256
                : SignatureAlgorithm.ES256);
    return registration ->
        registration.getRegistrationId().startsWith(EDDSA)
            ? eddsaDecoder(registration)
            : standard.createDecoder(registration);
  }

  /** Verifies Ed25519, for which Spring Security has no setting. */
  private static JwtDecoder eddsaDecoder(ClientRegistration registration) {
    var keys =
        JWKSourceBuilder.create(toUrl(registration.getProviderDetails().getJwkSetUri())).build();
    var processor =
        new DefaultJWTProcessor<SecurityContext>() {
          @Override
          public JWTClaimsSet process(SignedJWT jwt, SecurityContext context)
              throws BadJOSEException, JOSEException {
            var selector = new JWKSelector(JWKMatcher.forJWSHeader(jwt.getHeader()));
            for (var key : keys.get(selector, context)) {
              if (jwt.verify(new Ed25519Verifier(key.toOctetKeyPair()))) return claimsOf(jwt);
            }
            throw new BadJWSException("Signed JWT rejected: Invalid signature");
          }
        };
    var decoder = new NimbusJwtDecoder(processor);
    decoder.setJwtValidator(
        new DelegatingOAuth2TokenValidator<>(
            new JwtTimestampValidator(), new OidcIdTokenValidator(registration)));
    decoder.setClaimSetConverter(
        new ClaimTypeConverter(OidcIdTokenDecoderFactory.createDefaultClaimTypeConverters()));
    return decoder;
  }

  private static JWTClaimsSet claimsOf(SignedJWT jwt) throws BadJOSEException {
    try {
      return jwt.getJWTClaimsSet();
    } catch (ParseException exception) {
      throw new BadJWSException(exception.getMessage(), exception);
    }
  }

  private static URL toUrl(String text) {
    try {
      return URI.create(text).toURL();
    } catch (MalformedURLException exception) {
      throw new IllegalArgumentException(exception);
    }
  }

  @Bean
  SecurityFilterChain security(HttpSecurity http) throws Exception {
    return http.authorizeHttpRequests(requests -> requests.anyRequest().authenticated())
        .oauth2Login(
            login ->
                login
                    .defaultSuccessUrl("/", true)
                    .failureHandler(
                        (request, response, exception) -> {
                          response.setStatus(401);
                          response.getWriter().print(exception.getMessage());
                        }))
        .build();
  }

  @GetMapping("/")
  Map<String, Object> identity(@AuthenticationPrincipal OidcUser user) {
    return Map.of("claims", user.getIdToken().getClaims(), "userinfo", user.getUserInfo().getClaims());
  }
}
